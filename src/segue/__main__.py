"""python -m segue"""

from segue.cli import main

main()
