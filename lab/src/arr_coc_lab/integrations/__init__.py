"""The field's evaluation harnesses: arr-coc as one of their models. Thin clients of `ARRCOCModel`.

chat      a harness's chat, answered from the tokens that matter; what both adapters share
lmms      lmms-eval: `python -m lmms_eval --model arr_coc ...` (extra `lmms`)
pages     a task of drawn pages for lmms-eval: `python -m arr_coc_lab.integrations.pages --out FOLDER`
vlmeval   VLMEvalKit: `python -m arr_coc_lab.integrations.vlmeval ...`

No harness is imported before it is used.
"""
