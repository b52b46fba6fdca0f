"""Compile the strategy against the installed udpfast: its `.pxd` files are found like modules."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

import udpfast

setup(
    ext_modules=cythonize(
        [
            Extension(
                "flow_strategy.flow",
                ["flow_strategy/flow.pyx"],
                include_dirs=[udpfast.get_include()],  # udpfast.h, for UDPFAST_RING_LAYOUT
            )
        ],
        # Where Cython does not look by itself: udpfast as a checkout that is installed in place.
        include_path=[str(Path(udpfast.__file__).parents[1])],
        # Those of udpfast itself: its inline functions are compiled here as well.
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
        },
    )
)
