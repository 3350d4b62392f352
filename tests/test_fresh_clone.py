"""What a new user does: clone, then the command of the README; with GitHub, and where it cannot be reached."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.test_docs import REPOSITORY, blocks

pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]

NOT_REACHED = re.compile(r"^setup: no Sisyphus \(GitHub cannot be reached, .*$", flags=re.MULTILINE)


def new_user(folder: Path, **environ: str) -> str:
    """The commands of the README that need no cluster, in an empty folder; what they print."""
    (block,) = (block for block in blocks(REPOSITORY / "README.md", "bash") if "make demo" in block)
    clone = re.sub(r"git clone \S+ syncopate", f"git clone {REPOSITORY} syncopate", block)
    assert clone != block, "the README does not show how to clone"
    script = "set -e\n" + clone.replace("make test", "true")
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={
            **{name: os.environ[name] for name in os.environ if name not in ("CI", "PYTHONPATH", "VIRTUAL_ENV")},
            **environ,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_new_user_gets_a_table(tmp_path):
    printed = new_user(tmp_path)
    assert not NOT_REACHED.search(printed)
    assert "output/quickstart/table/table.txt" in printed
    assert "bigram" in printed


def test_a_new_user_without_github_gets_the_table_too(tmp_path):
    """git is told of a GitHub that nobody answers for."""
    config = tmp_path / "gitconfig"
    config.write_text(
        '[safe]\n\tdirectory = *\n[url "https://127.0.0.1:9/"]\n\tinsteadOf = https://github.com/\n', encoding="utf-8"
    )
    printed = new_user(tmp_path, GIT_CONFIG_GLOBAL=str(config))
    assert len(NOT_REACHED.findall(printed)) == 1, printed
    assert "runs/quickstart/table/table.txt" in printed
    assert "bigram" in printed
