"""Committed files on their way to their places: at each moment a power cut leaves them where somebody finds them."""

from pathlib import Path

import pytest

from rmqha.spark import ReadOptions
from rmqha.spark.replay import ReplayOptions, output, replay
from rmqha.spark.replay.output import Output
from rmqha.spark.replay.sink import sync
from tests.spark.in_process import in_process
from tests.spark.logs import LogWriter


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    """Of three topics."""
    writer = LogWriter(tmp_path / "store")
    for number in range(30):
        writer.append(b"x", topic=b"topic%d" % (number % 3))
    return writer


class Names:
    """Which names of the output a power cut would leave: those that its directories had when they were forced."""

    def __init__(self, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.durable: set[Path] = set()
        self.when_staging_went: list[set[Path]] = []
        remove = Output._remove_staging

        def note(path: str) -> None:
            sync(path)
            if Path(path).is_dir():
                self.durable = {name for name in self.durable if name.parent != Path(path)} | {*Path(path).iterdir()}

        def note_removal(self_: Output) -> None:
            if [*(out / "_rmqha").glob("staging-*")]:
                self.when_staging_went.append({*self.durable})
            remove(self_)

        monkeypatch.setattr(output, "sync", note)
        monkeypatch.setattr(Output, "_remove_staging", note_removal)


@pytest.mark.parametrize("interrupted", [False, True], ids=["at once", "by the next run"])
def test_files_are_durable_in_their_places_before_those_they_came_from_go(
    interrupted: bool, log: LogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest that names a file which is in neither place stops every further run."""
    out = tmp_path / "out"
    options = ReplayOptions(str(log.root), str(out), ReadOptions())
    if interrupted:
        with monkeypatch.context() as patch:
            patch.setattr(Output, "_move_files", lambda *_: 1 // 0)
            patch.setattr(Output, "_remove_staging", lambda _: None)
            with pytest.raises(ZeroDivisionError):
                replay(options, start=in_process)
        assert not [*out.glob("topic=*")]
    names = Names(out, monkeypatch)
    replay(options, start=in_process)
    written = {*out.glob("topic=*/*")}
    assert len(written) == 3
    (durable,) = names.when_staging_went
    assert durable >= written
    assert durable >= {file.parent for file in written}
