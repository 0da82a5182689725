"""The table of the families that arr-coc knows, for docs/models.md."""

from arr_coc.families import offers


def offers_table() -> str:
    """A row per family, from the registry."""
    lines = ["| family | `model_type` | `sparse`, `saccade` | clips | |", "|---|---|---|---|---|"]
    for one in offers():
        types = ", ".join(f"`{kind}`" for kind in one.model_types)
        early = "yes" if one.sparse else "by whole tiles" if one.tiles else "run as `prune`"
        early = "`saccade` by finer crops" if one.crops else early
        lines.append(f"| {one.title} | {types} | {early} | {'yes' if one.clips else '-'} | {one.remark} |")
    return "\n".join(lines)
