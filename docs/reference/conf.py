"""How Sphinx makes the reference of the Python interfaces from their docstrings: `tox -e reference`."""

from rmqha import __version__

project = "rmqha"
release = __version__
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "alabaster"
html_show_copyright = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_type_aliases = {"Start": "~rmqha.client.start.Start", "SendOutcome": "~rmqha.client.results.SendOutcome"}
napoleon_use_ivar = True  # not once more as members
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"(trio|pyarrow|pa|pyspark|collections|datetime)\..*"),  # not ours
    ("py:class", r"rmqha\.(codec|store|transport)\..*"),  # ours, not for programs
]
