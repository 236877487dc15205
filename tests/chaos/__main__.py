import sys

from tests.chaos.chaos import main

sys.exit(main())
