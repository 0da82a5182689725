"""Evaluation harnesses with arr-coc as one of their models; no harness is imported before it is used.

lmms      lmms-eval: `python -m lmms_eval --model arr_coc ...` (extra `lmms`)
pages     a task of drawn pages for lmms-eval: `python -m arr_coc_lab.integrations.pages --out FOLDER`
vlmeval   VLMEvalKit: `python -m arr_coc_lab.integrations.vlmeval ...`
"""
