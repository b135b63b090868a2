"""Sphinx: builds the site from the Markdown files of this folder. ``scripts/docs`` runs it.

The pages are plain Markdown that GitHub can show. ``_site/pages.py`` adds what only the site has: the navigation, tabs,
links to files outside of ``docs/``, and the API reference.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_site"))

import pages  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

from howdah import __version__  # noqa: E402

project = "Howdah"
author = "the Howdah contributors"
project_copyright = author
release = os.environ.get("HOWDAH_DOCS_VERSION") or __version__
version = release
source = "https://github.com/howdah/howdah"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
]
root_doc = "index"
exclude_patterns = ["_site"]
nitpicky = True
# Other packages and the standard library have no page here, nor have internal modules that a signature names.
nitpick_ignore_regex = [(r"py:.*", r"(?!howdah\.).*"), (r"py:(class|obj)", r"howdah\.\w+\..*")]
suppress_warnings = ["misc.highlighting_failure"]  # blocks are shortened with …, which is no valid JSON

myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 4
highlight_language = "text"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_use_legacy_class_based = False
default_role = "code"
python_maximum_signature_line_length = 100
add_module_names = False

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "Howdah"
html_static_path = ["_site/static"]
templates_path = ["_site/templates"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": source,
    "source_branch": "HEAD",
    "source_directory": "docs/",
    "top_of_page_buttons": ["view"],
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}


def setup(app: Sphinx) -> None:
    """Let ``pages`` rewrite every page before it is parsed."""
    revision = os.environ.get("HOWDAH_DOCS_REVISION", "HEAD")
    rewriter = pages.Rewriter(HERE, f"{source}/blob/{revision}")

    def rewrite(_: Sphinx, name: str, text: list[str]) -> None:
        text[0] = rewriter.rewrite(name, text[0])

    app.connect("source-read", rewrite)
