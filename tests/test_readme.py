"""The recipe shown in the README is the one that the demo trains."""

from __future__ import annotations

import ast

from tests.test_docs import REPOSITORY, blocks


def test_the_recipe_of_the_readme_is_the_quickstart():
    (shown,) = blocks(REPOSITORY / "README.md", "python")
    shipped = (REPOSITORY / "configs" / "quickstart.py").read_text(encoding="utf-8")
    body = ast.parse(shipped).body[1:]  # without its docstring
    assert ast.dump(ast.parse(shown)) == ast.dump(ast.Module(body=body, type_ignores=[]))
