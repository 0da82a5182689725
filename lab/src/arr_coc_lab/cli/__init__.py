"""The commands that the lab adds to `arr-coc`: eval, report, bench, draw, world and adapt."""
