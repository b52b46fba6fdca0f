"""For the documentation site: show the title of the page in a link, not the name of its file."""

import re
from pathlib import PurePosixPath
from typing import Any

LINK = re.compile(r"\[[\w-]+\.md\]\(([\w./-]+\.md)(#[\w-]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: Any) -> str:
    """Replace the names of files in links by the titles of their pages."""
    folder = PurePosixPath(page.file.src_uri).parent

    def titled(link: re.Match[str]) -> str:
        file = files.get_file_from_path(str(folder / link[1]))
        title = re.match(r"# (.+)", file.content_string) if file is not None else None
        return f"[{title[1]}]({link[1]}{link[2] or ''})" if title else link[0]

    return LINK.sub(titled, markdown)
