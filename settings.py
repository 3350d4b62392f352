# Settings of Sisyphus for this folder: they come from a setup, one folder per kind of cluster under setups/.
# Sisyphus executes this text inside its own module, with the folder it was started in as the working directory.
import os

_setup = os.environ.get("SYNCOPATE_SETUP", "local")
_file = os.path.join("setups", _setup, "settings.py")
if not os.path.isfile(_file):
    raise SystemExit(
        f"SYNCOPATE_SETUP={_setup!r}, but there is no {_file} here; setups are {sorted(os.listdir('setups'))}"
    )
with open(_file, encoding="utf-8") as _text:
    exec(compile(_text.read(), _file, "exec"))
