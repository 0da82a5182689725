"""How the bundled model was made: its tokenizer, shape, lessons and training stages. Not part of the wheel.

The stages are run from the root of the repository, as scripts of `runs` do (bundled, reads, study):

    python -m making.vision        1. the vision tower, on dense labels
    python -m making.language      2. the language model, on symbolic pages
    python -m making.together      3. both, on questions about drawn pages
    python -m making.reading       4. the vision tower, on browser-rendered text beside drawn pages
    python -m making.answers       5. the language model, on what perfect eyes would see of rendered pages
    python -m making.rendered      6. both, on questions about rendered and drawn pages
    python -m making.stem          the stem of modes `sparse` and `saccade`
    python -m making.familiarity   what its stem tells drawn pages from other pictures by

What reads an image in part is taught by recipes of `arr-coc train`: `partial`, `coarse` and
`tower`; runs/study.sh has their lines.
"""
