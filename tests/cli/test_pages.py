import re
from pathlib import Path

import pytest

from rmqha.cli.pages import Page, see

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", Page, ids=lambda page: page.name)
def test_each_section_that_a_reason_names_is_there(page: Page) -> None:
    named = re.fullmatch(r"(docs/[a-z-]+\.md), '(.+)'", page)
    assert named is not None
    headings = re.findall(r"^#+ (.*)$", (ROOT / named[1]).read_text(encoding="utf-8"), re.MULTILINE)
    assert sum(heading.startswith(named[2]) for heading in headings) == 1


def test_a_reason_that_names_its_page_is_left_as_it_is() -> None:
    assert see("full", Page.NOT_SEND_OK) == f"full; see {Page.NOT_SEND_OK}"
    assert see("full: docs/recovery.md", Page.NOT_SEND_OK) == "full: docs/recovery.md"
