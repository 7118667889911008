"""A plugin of pytest's, ``-p tests.without_extras``: as if nothing of the optional extras were installed."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Final

OPTIONAL: Final = frozenset({"h11", "isal", "lz4", "numpy", "prometheus_client", "pyarrow", "pyspark", "zstandard"})


class _InstalledFinder(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, *args: Any, **kwargs: Any) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in OPTIONAL else super().find_spec(fullname, *args, **kwargs)


sys.meta_path[sys.meta_path.index(PathFinder)] = _InstalledFinder
