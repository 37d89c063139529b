#!/usr/bin/env bash
# Prints the packages whose tests are run with overflow checks and debug assertions, as cargo wants them: those that are
# deterministic, and that handle what comes from peers; and the fuzz targets. Always together: for one alone cargo builds all
# that it needs again, with other features.
printf -- '--package=%s\n' srd-wire srd-proto srd-device srd-msg srd-races srd-world srd-fuzz
