"""Constants that were measured, mostly on two cores of an AMD EPYC and on an H200. None of them changes what
is computed, but `TRIES_AT_ONCE` (the blocks in which rejection sampling proposes) and `MOST_ROWS` (whether a
search goes by tables, which has a random stream of its own)."""

# On a CPU: bytes of parameters at a time. More are no faster, and more code to compile.
CACHE = 64 * 1024
# XLA compiles a loop that touches fewer bytes than this into one function (its own bound is 64 KiB). Searches
# by tables are ten times faster so, and small networks' updates compile sooner.
SMALL_LOOP_BYTES = 16 * 2**20
# Of the arrays that a small program is given: for these XLA leaves out some passes (see `compiler`).
SMALL_PROGRAM_BYTES = 2**20
# Inputs of D that are evaluated before a search. A simulation takes about three steps: evaluating D at this
# many inputs beforehand costs less than evaluating it where the search goes, one simulated step after
# another.
MOST_ROWS = 32
# Bytes that making the tables of a draw touches, about.
BYTES_OF_TABLES = 4096
# Observations of a search by tables, whose loop over them is unrolled.
MOST_OBSERVATIONS = 64
# Draws of a run whose networks are tabulated together: their weights fit a CPU's cache.
TABULATED_AT_ONCE = 64
# Rejection sampling on a GPU, where draws of a particle share a reading of its weights; nine lanes need 5 or
# 6.
TRIES_AT_ONCE = 6
# Particles with shared networks at a time: enough for a matrix product, and what it touches stays in the
# cache.
LATENT_AT_ONCE = 128
# Runs whose particles are moved together on a GPU: with 1024 particles about a gigabyte of messages.
FEW_AT_ONCE = 64
# Rows of remembered episodes that are gone through side by side on a GPU; on a CPU one after the other.
REMEMBERED_ROWS_AT_ONCE = 8
