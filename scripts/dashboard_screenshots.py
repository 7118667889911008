"""Screenshots of the dashboard in the states that an operator meets, of made-up brokers.

python scripts/dashboard_screenshots.py DIRECTORY     # each state, light and dark
python scripts/dashboard_screenshots.py --docs        # docs/dashboard.png
"""

import argparse
import sys
import tempfile
from pathlib import Path

import trio

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.e2e.chromium import browsing  # noqa: E402
from tests.e2e.dashboards import SCENES, showing  # noqa: E402

DOCS = ROOT / "docs" / "dashboard.png"
DOCS_STATE = "slave lost"
HEIGHT = 1130


async def shoot(wanted: list[tuple[str, str, Path]], *, scale: float) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with browsing(Path(profile)) as page:
            for state, scheme, path in wanted:
                async with showing(SCENES[state]) as (url, _):
                    await page.open(url, scheme=scheme)
                    await page.screenshot(path, height=HEIGHT, scale=scale)
                    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args()
    if options.docs:
        trio.run(lambda: shoot([(DOCS_STATE, "light", DOCS)], scale=0.75))
    elif options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
        schemes = ("light", "dark")
        named = [
            (state, scheme, options.directory / f"{state.replace(' ', '-')}-{scheme}.png")
            for state in SCENES
            for scheme in schemes
        ]
        trio.run(lambda: shoot(named, scale=1.0))
    else:
        parser.error("name a directory, or --docs")


if __name__ == "__main__":
    main()
