"""`python -m arr_coc` is `arr-coc`."""

import sys

from arr_coc.cli import main

sys.exit(main())
