"""The head of a staged run: a zip file that Python runs (PEP 441). It unpacks itself and becomes the agent.

usage: python3 stage.pyz start RUN_DIR HOST
"""

import os
import sys
import zipfile

run_dir = os.path.abspath(os.path.expanduser(sys.argv[2]))
with zipfile.ZipFile(sys.argv[0]) as stage:
    stage.extractall(run_dir)
os.execv(sys.executable, [sys.executable, os.path.join(run_dir, "agent.py"), *sys.argv[1:]])
