"""One target under atheris, guided by coverage: ``python -m tests.fuzz.run_atheris NAME [libFuzzer options]``.

A finding ends the process with a code other than 0; libFuzzer writes the input to a file and says its name.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["rmqha.codec", "rmqha.replication", "rmqha.store"]):
    from tests.fuzz.request_targets import ALL_TARGETS


def main() -> None:
    name, *options = sys.argv[1:]
    target = ALL_TARGETS[name]
    with TemporaryDirectory(prefix="rmqha-corpus-") as corpus:
        for number, seed in enumerate(target.seeds()):
            Path(corpus, f"seed-{number}").write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, corpus], target.run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
