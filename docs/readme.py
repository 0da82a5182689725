"""A hook of MkDocs: sections of README.md, and other files of the root, stand in the site without a copy.

    <!-- readme: Install -->        the section "## Install", with its heading
    <!-- readme -->                 what stands before the first section
    <!-- file: CHANGELOG.md -->     a whole file of the root

Laws: a section or file that isn't there ends the build; links are made to fit the site, so a strict build
checks them, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MARK = re.compile(r"^<!-- (readme|file)(?:: (.+?))? -->$", re.M)
HEADING = re.compile(r"^## (.+)$", re.M)


def sections(text: str) -> dict[str, str]:
    """The parts of a page by their headings of the second level, "" for what stands before the first."""
    starts = [(0, ""), *((match.start(), match[1]) for match in HEADING.finditer(text))]
    ends = [start for start, _ in starts[1:]] + [len(text)]
    return {name: text[start:end].strip() for (start, name), end in zip(starts, ends, strict=True)}


def anchor(heading: str) -> str:
    """The name by which a heading is linked to."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def homes() -> dict[str, str]:
    """The page of the site that each section of README.md stands on, by the section's anchor."""
    return {
        anchor(match[2] or ""): page.name
        for page in sorted(DOCS.glob("*.md"))
        for match in MARK.finditer(page.read_text(encoding="utf-8"))
        if match[1] == "readme"
    }


def fitted(text: str) -> str:
    """A page with links as they are from `docs`."""
    where = homes()
    text = re.sub(r"\]\((?:\.\./)?docs/", "](", text)
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = re.sub(rf"\]\((?:\.\./)?{name}\.md", f"]({name.lower()}.md", text)
    return re.sub(
        r"\]\((?:\.\./README\.md)?#([\w-]+)\)",
        lambda match: f"]({where[match[1]]}#{match[1]})" if match[1] in where else match[0],
        text,
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page.

    Raises:
        ValueError: a mark names a section that README.md doesn't have.
        FileNotFoundError: a mark names a file that isn't there.
    """

    def replaced(match: re.Match[str]) -> str:
        kind, name = match[1], match[2] or ""
        if kind == "file":
            return (ROOT / name).read_text(encoding="utf-8").strip()
        parts = sections((ROOT / "README.md").read_text(encoding="utf-8"))
        if name not in parts:
            raise ValueError(f"README.md has no section {name!r}: it has {', '.join(filter(None, parts))}")
        return parts[name]

    return fitted(MARK.sub(replaced, markdown))
