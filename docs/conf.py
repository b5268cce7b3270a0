"""Settings of Sphinx: `make docs`."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("_ext")))

project = "spark-tf-experiment"
author = "The spark-tf-experiment developers"
release = importlib.metadata.version(project)
language = "en"
smartquotes = False  # quotes are copied into code

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "from_code"]
myst_heading_anchors = 4  # links to headings, as GitHub makes them
myst_enable_extensions = ["deflist", "fieldlist"]

default_role = "code"  # docstrings put code between single backticks
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # fields of dataclasses are described once
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"{project} {release}"
html_show_sphinx = False
html_copy_source = False
