"""Choose the built-in sample: the first held-out page with a question that is answered right at every budget.

Cost: a minute. Run from the repository root once the bundled model and its allocator are in place:
    python runs/sample.py [FAMILY ...]        families of questions to try, in this order
Writes src/arr_coc/bundled/sample.png and sample.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from arr_coc import ARRCOCModel
from arr_coc_lab.world import draw_page

BUNDLED = Path("src/arr_coc/bundled")


def main() -> None:
    model = ARRCOCModel.from_pretrained(strict=True)
    for family in sys.argv[1:] or ["value", "title", "shape"]:
        for seed in range(40):
            page = draw_page(seed, (1024, 1024), "test", void=False)
            session = model.session(page.image)
            # The longest answer first: two characters can be luck.
            questions = sorted(
                (q for q in page.questions if q.family == family), key=lambda q: -len(q.answer)
            )
            for question in questions:
                full = session.ask(question.text, mode="full")
                if full.text != question.answer:
                    continue
                answers = [session.ask(question.text, budget=budget, mode="prune") for budget in (273, 64)]
                if all(a.text == question.answer for a in answers) and not answers[0].fallback:
                    page.image.save(BUNDLED / "sample.png")
                    sample = {"question": question.text, "answer": question.answer, "seed": seed}
                    (BUNDLED / "sample.json").write_text(json.dumps(sample, indent=1) + "\n")
                    print(sample)
                    return
    raise SystemExit("no question of 160 pages is answered right at every budget: train the model further")


if __name__ == "__main__":
    main()
