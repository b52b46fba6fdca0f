"""Instance directories have one owner, and nobody else may write there."""

import os
import stat
from pathlib import Path

import pytest

from udpfast.errors import ConfigError, RegionError
from udpfast.shm.instance import instance_directory, instance_root, journal_directory


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("UDPFAST_SHM", str(tmp_path / "root"))
    return tmp_path / "root"


def test_root_without_setting_is_this_users(monkeypatch):
    monkeypatch.delenv("UDPFAST_SHM")
    assert str(instance_root()) == f"/dev/shm/udpfast-{os.geteuid()}"


def test_instance_created_belongs_to_its_owner_alone(root):
    before = os.umask(0)
    try:
        directory = instance_directory("deribit.1-x_Y", create=True)
    finally:
        os.umask(before)
    assert directory == root / "deribit.1-x_Y"
    for created in (root, directory):
        assert stat.S_IMODE(created.stat().st_mode) == 0o700
    assert instance_directory("deribit.1-x_Y") == directory
    assert instance_directory("deribit.1-x_Y", create=True) == directory


def test_instance_absent_is_not_found(root):
    with pytest.raises(FileNotFoundError):
        instance_directory("deribit")
    assert not root.exists()


def test_instance_with_a_slash_is_a_path(tmp_path):
    assert instance_directory(tmp_path / "feed", create=True) == tmp_path / "feed"
    assert instance_directory(f"{tmp_path}/feed") == tmp_path / "feed"


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a\n", "a:b"])
def test_instance_name_with_other_characters_is_refused(name):
    with pytest.raises(ConfigError, match="an instance's name must have only letters"):
        instance_directory(name, create=True)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_directory_that_others_may_write_is_refused(root, mode):
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(RegionError, match=rf"owner .*mode {mode:04o}"):
        instance_directory("feed", create=True)
    root.chmod(0o700)
    instance_directory("feed", create=True).chmod(mode)
    with pytest.raises(RegionError, match=f"found mode {mode:04o}"):
        instance_directory("feed")


def test_directory_behind_a_symbolic_link_is_refused(root, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RegionError, match="found a symbolic link"):
        instance_directory("feed", create=True)


def test_directory_that_is_a_file_is_refused(root):
    root.mkdir(mode=0o700)
    (root / "feed").touch()
    with pytest.raises(RegionError, match="found another kind of file"):
        instance_directory("feed")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_directory_of_another_user_is_refused(root):
    directory = instance_directory("feed", create=True)
    os.chown(directory, 12345, -1)
    with pytest.raises(RegionError, match=r"expected owner 0 \(or root\), found 12345"):
        instance_directory("feed", create=True)


def test_journal_directory_is_one_path_by_whatever_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UDPFAST_JOURNALS", str(tmp_path / "journals"))
    found = journal_directory("./kept", create=True)
    assert found == tmp_path / "kept" and found.is_dir()
    (tmp_path / "link").symlink_to("kept")
    for name in (found, "./kept", Path("kept"), f"../{tmp_path.name}/kept", "./link"):
        assert journal_directory(name) == found
    assert journal_directory("kept", create=True) == tmp_path / "journals" / "kept"
