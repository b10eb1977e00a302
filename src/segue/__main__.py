"""python -m segue"""

import sys

from segue.cli import main

sys.exit(main())
