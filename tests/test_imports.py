"""What importing the package does, and what it does not."""

import subprocess
import sys

IMPORT_ALL = """
import sys
from pkgutil import walk_packages

started = []
sys.addaudithook(lambda event, args: event == "subprocess.Popen" and started.append(args))

import qaffde

for module in walk_packages(qaffde.__path__, "qaffde."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
assert not started, started
laboratory = [name for name in sys.modules if name.split(".")[0] in ("experiments", "benchmarks")]
assert not laboratory, laboratory
"""


def test_importing_every_module_starts_no_process_and_needs_no_experiments():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_estimators_leave_to_first_use_what_only_some_fits_need():
    code = "from qaffde import QAFFDE; import sys; print('sklearn.cluster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
