"""Lets the tests import rewrite_problems, whatever the import mode."""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
logging.getLogger("torch.__trace").propagate = False
