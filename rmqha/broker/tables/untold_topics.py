"""UntoldTopics: new topics that clients cannot find yet. They are to be saved, and then name servers are to be told.

A client that is answered that a topic is there asks a name server for it at once, and if that one does not know it,
perhaps only after 20 s again. So answers wait for it, as RocketMQ's do.

Source: spec: remoting §2.3; rocketmq-all-4.9.8 TopicConfigManager.java.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from rmqha.replication.watermark import Complete, Watermark


class UntoldTopics:
    """Topics are counted as they are made, changed and deleted (:attr:`TopicConfigManager.made`).

    Attributes:
        numbers: of each topic that was made, and of which clients are not told yet, that count.
        told: so many are saved, and name servers know it, or are not waited for any more. It never stays behind what
            is saved for long.
        tell: called whenever more are saved, with how many are; has ``told`` follow. At once, if nobody replaces it.
    """

    def __init__(self, saved: Watermark, *, save: Callable[[], None]) -> None:
        """``saved``: so many are in ``topics.json``; ``save`` has it written soon."""
        self._saved: Final = saved
        self._save: Final = save
        self.numbers: dict[str, int] = {}
        self.told: Final = Watermark()
        self.tell: Callable[[int], None] = self.told.advance
        self.told.subscribe(self._note_told)
        saved.subscribe(lambda: self.tell(saved.value))

    def _note_told(self) -> None:
        told = self.told.value
        self.numbers = {topic: number for topic, number in self.numbers.items() if number > told}

    def when_told(self, topic: str, deadline: float, complete: Complete) -> None:
        """Have one of the topics saved and told, and be told of that; or that it was not saved before ``deadline``."""
        number = self.numbers[topic]

        def on_saved(is_saved: bool, value: int) -> None:
            if is_saved:
                self.told.add(number, inf, complete)
            else:
                complete(False, value)

        self._saved.add(number, deadline, on_saved)
        if number > self._saved.value:
            self._save()
