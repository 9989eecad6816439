"""Lets the tests import hidden_problems, whatever the import mode, and spares them the log of every trace."""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
logging.getLogger("torch.__trace").propagate = False
