"""A server in front of any chat API: the pictures of requests are packed for the questions beside them.

Needs the extra `arr-coc[proxy]`.
"""
