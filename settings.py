# Settings of Sisyphus for this folder: they come from a setup, one folder per kind of cluster under setups/, which is
# chosen by SYNCOPATE_SETUP or by the name of the host. docs/setups.md says how to add one.
# Sisyphus executes this text inside its own module, with the folder it was started in as the working directory.
import os

from syncopate.settings.choice import SETUP, chosen_setup

_setup, _file = chosen_setup("setups", os.environ)
# A task loads the settings anew on its own host, which may have quite another name.
os.environ[SETUP] = _setup
exec(compile(_file.read_text(encoding="utf-8"), str(_file), "exec"))
