"""How the bundled model was made: its tokenizer, shape, lessons and training stages. Not part of the wheel.

The stages are run from the root of the repository, as `runs/bundled.sh` and `runs/study.sh` do:

    python -m making.vision        1. the vision tower, on dense labels
    python -m making.language      2. the language model, on symbolic pages
    python -m making.together      3. both, on questions about drawn pages
    python -m making.stem          the stem of modes `sparse` and `saccade`
    python -m making.familiarity   what its stem tells drawn pages from other pictures by
    python -m making.partial       LoRAs for reading what is encoded in part
    python -m making.compressor    the conv compressors
"""
