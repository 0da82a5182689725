"""What each group of texture channels adds: recall of evidence by one small learner, and time.

    python runs/texture_groups.py OUT.json [--pages CACHE --training-pages CACHE] [--fit 40] [--test 60]

    learner     logistic regression on the cells of training pages, by evidence; as many steps of Newton for all. "blind":
                channels alone. "coupled": channels, the guide's logit of the cell, and their products
    presets     mvp13, mvp13 with each other group, fast13, full20 (full40 without costly groups), full40
    pages       drawn (`arr_coc_lab.world`), splits "train" and "test"; rendered, of two caches of `arr-coc world`, likewise.
                Up to four questions of each; maps of the page's earlier questions are its attention history
    clips       drawn pages again, panned by 40 px down and 24 px to the left since the frame before, which is all that the
                temporal groups have to go by; the guide's map of that frame is the previous relevance
    recall      share of a question's evidence cells among the best 64, 128 and 273 of 1,024 cells (that share of a page of
                another size), mean over pages; [low, high] is a bootstrap over pages of 90 %. "gain" is to mvp13, paired
    ms          CPU time per picture of 1024 x 1024 px on one core; a ratio is the median over rounds of one preset's time
                over that of mvp13 just before it. Of a group: what it takes alone, less what any texture array takes

Components are those of the bundled model's own encoder, on its coarse view of at most 256 cells; the basis is fitted on the
training pages. What was made of a page is kept in --keep, so that a run that was stopped goes on where it was. About ten
minutes of one core at the usual numbers.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from PIL import ImageChops, ImageOps
from safetensors.torch import load_file
from tqdm import tqdm

from arr_coc.choose.basis import Basis, fit_basis
from arr_coc.choose.channels import CHANNEL_GROUPS, PRESETS
from arr_coc.choose.texture import TextureCache, channel_names, generate_texture_array
from arr_coc.data.evidence import evidence_cells
from arr_coc.files.saved import write_tensors
from arr_coc.guide.guide import load_guide, text_evidence
from arr_coc.model import ARRCOCModel
from arr_coc.seam.gestalt import coarse_features
from arr_coc_lab.evaluate.guide import BUDGETS, WHOLE_PAGE, judge, kept_by
from arr_coc_lab.evaluate.guide_pages import drawn_samples, page_samples

ROOT = Path(__file__).parents[1]
QUESTIONS, PAN = 4, (40, -24)
"""Questions of a page; how far a page moved, down and to the right in px, since the frame before."""
NEWTON, RIDGE = 6, 1e-3
"""Steps of the learner, and the weight decay of each."""
BASE = "mvp13"
GROUPS = [name for name in CHANNEL_GROUPS if name not in PRESETS[BASE]]
TEMPORAL = ["motion", "relevance_memory", "frame_change", "change_memory", "attention_memory"]
EVERY = (*PRESETS[BASE], *GROUPS)


def rows():
    """Groups by the name of each row."""
    added = {f"{BASE} + {name}": (*PRESETS[BASE], name) for name in GROUPS}
    return {BASE: PRESETS[BASE], **added, **{name: PRESETS[name] for name in ("fast13", "full20", "full40")}}


# ---- pages ----------------------------------------------------------------------------------------------


class Maker:
    """Makes of pages what the learner reads."""

    def __init__(self, keep=None):
        self.guide, self.model = load_guide(), ARRCOCModel.from_pretrained(strict=True)
        self.adapter = self.model.adapter_for("sparse")
        self.basis, self.keep, self.views = None, keep, {}

    def pixels(self, sample):
        """The picture on whole cells, [1, 3, h, w]."""
        width, height = sample.padded
        x = sample.pixels()[None]
        return F.pad(x, (0, width - x.shape[-1], 0, height - x.shape[-2]), mode="replicate")

    @torch.no_grad()
    def features(self, sample):
        """What the bundled model's encoder makes of a coarse view, [1, F, h, w]."""
        inputs = self.model.processor.image_processor(images=[sample.image], return_tensors="pt")
        return coarse_features(self.adapter, inputs)[0].float()

    def view(self, sample):
        """`features`, made once of a page."""
        if id(sample) not in self.views:
            self.views[id(sample)] = (
                sample,
                self.features(sample),
            )  # kept alive, so that no other has its id
        return self.views[id(sample)][1]

    def learn_basis(self, samples):
        """Fit the basis on the training pages, or read the one that was kept."""
        path = self.keep / "basis.safetensors" if self.keep else None
        if path and path.is_file():
            self.basis = Basis.load(path)
            return
        self.basis = fit_basis((self.view(s) for s in tqdm(samples, "basis")), source="bundled, coarse view")
        if path:
            self.basis.save(path)

    def pages(self, name, samples, pan=None):
        """`page` of each of some samples that has any, read where it was kept."""
        for number, sample in enumerate(tqdm(samples, name)):
            path = self.keep / f"{name}-{number}.safetensors" if self.keep else None
            if path and path.is_file():
                kept = load_file(path)
                page = [tuple(kept[f"{part}{i}"] for part in "cze") for i in range(len(kept) // 3)]
            else:
                page = self.page(sample, pan)
                if path:
                    parts = {
                        f"{k}{i}": x.clone()
                        for i, q in enumerate(page)
                        for k, x in zip("cze", q, strict=True)
                    }
                    write_tensors(parts, path)
            if page:
                yield page

    def page(self, sample, pan=None):
        """Per question its channels [C, N], the guide's logits [N] and evidence [N]; () without any evidence."""
        pointed = [q for q in sample.questions if q.evidence]
        step = max(1, len(pointed) // QUESTIONS)
        questions = pointed[::step][:QUESTIONS]
        if not questions:
            return []
        x, texts = self.pixels(sample), [q.text for q in questions]
        logits = judge(self.guide, x[0], texts, sample.grid).logits.float()
        inputs = {
            "text_evidence": text_evidence(self.guide, x[0])[None],
            "coarse_features": self.view(sample),
            "basis": self.basis,
        }
        before = None
        if pan is not None:
            earlier = replace(sample, image=shifted(sample.image, (-pan[0], -pan[1])))
            inputs["previous_frames"] = self.pixels(earlier)[:, None]
            before = (
                judge(self.guide, inputs["previous_frames"][0, 0], texts, sample.grid)
                .logits.float()
                .sigmoid()
            )
        parts, cache = [], TextureCache()
        for i, question in enumerate(questions):
            own = {} if not i else {"attention_history": logits[:i].sigmoid()[None]}
            own |= {} if before is None else {"previous_relevance": before[i : i + 1]}
            array = generate_texture_array(x, sample.grid, EVERY, **inputs, **own, cache=cache)
            evidence = evidence_cells(question.evidence, sample.grid, sample.padded).flatten()
            if bool(evidence.any()):
                parts.append((array[0].flatten(1), logits[i].flatten(), evidence))
        return parts


def shifted(image, by):
    """A picture moved by (down, right) px, its border repeated."""
    side = max(map(abs, by))
    wide = ImageOps.expand(image, side, fill=image.getpixel((0, 0)))
    width, height = image.size
    return ImageChops.offset(wide, by[1], by[0]).crop((side, side, side + width, side + height))


# ---- the learner ----------------------------------------------------------------------------------------


def designed(channels, logits, coupled):
    """What the learner reads of cells: [C, N] and [N] -> [M, N]."""
    channels = channels.double()
    if not coupled:
        return channels
    z = logits.double().clamp(-12, 12)[None] / 4
    return torch.cat((channels, z, z * channels))


class Learner:
    """A logistic regression on standardised inputs, by Newton's method; positives weigh as much as negatives."""

    def __init__(self, columns, targets):
        x = torch.cat(columns, 1)  # (M, N)
        y = torch.cat(targets).double()
        self.mean, self.spread = x.mean(1, keepdim=True), x.std(1, keepdim=True).clamp_min(1e-6)
        x = torch.cat(((x - self.mean) / self.spread, torch.ones_like(x[:1])))
        weight = torch.where(y > 0, 0.5 / y.sum(), 0.5 / (1 - y).sum())
        self.w = torch.zeros(len(x), dtype=torch.float64)
        decay = RIDGE * torch.eye(len(x), dtype=torch.float64)
        for _ in range(NEWTON):
            p = (self.w @ x).sigmoid()
            slope = x @ (weight * (p - y)) + decay @ self.w
            curve = (x * (weight * p * (1 - p)).clamp_min(1e-12)) @ x.T + decay
            self.w -= torch.linalg.solve(curve, slope)

    def __call__(self, x):
        return self.w[:-1] @ ((x - self.mean) / self.spread)


def recalls(pages, indices, learner, coupled):
    """Recall by budget of each page, [pages, budgets]."""
    table = []
    for page in pages:
        each = []
        for channels, logits, evidence in page:
            scores = learner(designed(channels[indices], logits, coupled)) if learner else logits
            count = {str(k): max(1, round(k * len(evidence) / WHOLE_PAGE)) for k in BUDGETS}
            each.append([kept.recall for kept in kept_by(scores, evidence, count).values()])
        table.append(torch.tensor(each).mean(0))
    return torch.stack(table)


def interval(values, generator, times=2000):
    """[low, high] of the mean of [pages, budgets] by a bootstrap of 90 %."""
    picks = torch.randint(len(values), (times, len(values)), generator=generator)
    means = values[picks].mean(1)
    return torch.quantile(means, torch.tensor([0.05, 0.95]), dim=0)


def thinned(page, seed):
    """A page's cells for the learner: those with evidence, and four times as many others."""
    kept = []
    for number, (channels, logits, evidence) in enumerate(page):
        generator = torch.Generator().manual_seed(1000 * seed + number)
        others = (~evidence).nonzero()[:, 0]
        some = others[torch.randperm(len(others), generator=generator)[: 4 * int(evidence.sum())]]
        index = torch.cat((evidence.nonzero()[:, 0], some))
        kept.append((channels[:, index], logits[index], evidence[index]))
    return kept


def compared(training, test, names):
    """The table of one set of pages: by row, "blind" and "coupled", recall and gain by budget; mvp13 comes first."""
    order = {name: i for i, name in enumerate(channel_names(EVERY))}
    thin = [part for number, page in enumerate(training) for part in thinned(page, number)]
    table = {"guide alone": {"coupled": figures(recalls(test, [], None, True))}}
    base = {}
    for row in names:
        columns = [order[channel] for channel in channel_names(rows()[row])]
        table[row] = {}
        for kind in ("blind", "coupled"):
            inputs = [designed(c[columns], z, kind == "coupled") for c, z, _ in thin]
            learner = Learner(inputs, [evidence for _, _, evidence in thin])
            own = recalls(test, columns, learner, kind == "coupled")
            base.setdefault(kind, own)
            table[row][kind] = figures(own, None if row == BASE else base[kind])
    return table


def figures(own, base=None):
    """Recall of pages [pages, budgets] by budget, and its gain to that of another row."""
    generator = torch.Generator().manual_seed(0)
    parts = {"recall": own} | ({} if base is None else {"gain": own - base})
    table = {str(k): {} for k in BUDGETS}
    for name, values in parts.items():
        bounds = interval(values, generator)
        for j, figure in enumerate(table.values()):
            figure |= {name: rounded(values[:, j].mean()), f"{name} range": rounded(bounds[:, j])}
    return table


def rounded(x):
    """A tensor as numbers of four places."""
    return [round(v, 4) for v in x.tolist()] if x.ndim else round(x.item(), 4)


# ---- time -----------------------------------------------------------------------------------------------


def timed(run):
    """CPU milliseconds of a call."""
    start = time.thread_time()
    run()
    return 1e3 * (time.thread_time() - start)


def times(maker, sample, rounds):
    """CPU time of presets and groups beside mvp13, with and without making the inputs of costly groups."""
    x, grid = maker.pixels(sample), sample.grid
    still = {
        "text_evidence": text_evidence(maker.guide, x[0])[None],
        "coarse_features": maker.features(sample),
        "basis": maker.basis,
    }
    relevance = torch.rand(1, *grid, generator=torch.Generator().manual_seed(0))
    clip = {
        "previous_frames": maker.pixels(replace(sample, image=shifted(sample.image, PAN)))[:, None],
        "previous_relevance": relevance,
        "attention_history": relevance[:, None],
    }

    def texture(channels, **inputs):
        return lambda: generate_texture_array(x, grid, channels, **inputs)

    runs = {
        "fast13": texture("fast13"),
        "full20": texture("full20"),
        "full20, clip": texture("full20", **clip),
        "full40, inputs at hand": texture("full40", **still),
        "full40, inputs at hand, clip": texture("full40", **still, **clip),
        "input: text evidence": lambda: text_evidence(maker.guide, x[0]),
        "input: the bundled model's coarse view": lambda: maker.features(sample),
        "input: a whole look of the guide": lambda: maker.guide.page(x[0]),
    }
    own = {name: texture([name], **still, **clip) for name in EVERY}
    runs |= {f"group: {name}": run for name, run in own.items()}
    found = {name: [] for name in runs}
    bases = []
    with torch.no_grad():
        for run in (texture(BASE), *runs.values()):
            run()
        for _ in range(rounds):
            for name, run in runs.items():
                base = timed(texture(BASE))
                bases.append(base)
                found[name].append((timed(run), base))
    free = median(ms for ms, _ in found["group: position"])
    table = {BASE: {"ms": round(median(bases), 2), "ratio": 1.0}}
    for name, pairs in found.items():
        group = name.startswith("group: ")
        less = free if group else 0.0  # what any texture array takes: inputs checked, channels joined
        table[name] = {
            "ms": round(median(max(0.0, ms - less) for ms, _ in pairs), 2),
            "ratio": round(median(max(0.0, ms - less) / base for ms, base in pairs), 3),
        }
        if group:
            table[name]["cost"] = CHANNEL_GROUPS[name.removeprefix("group: ")].cost
    return table


def shares(table):
    """Times as shares of what choosing saves in the 2B shape, of `bench/results/2b-1024.json` (two cores, bfloat16)."""
    result = json.loads((ROOT / "bench/results/2b-1024.json").read_text(encoding="utf-8"))
    ways = {row["mode"]: row for row in result["rows"]}
    stock, view = ways["stock"]["ms"], ways["saccade"]["stages"]["gestalt"]
    figures = {}
    for mode in ("prune@273", "sparse@273", "sparse@64", "saccade"):
        saved = stock - ways[mode]["ms"]
        own = {name: table[name]["ms"] for name in (BASE, "full20", "full20, clip", "input: text evidence")}
        own["full40, inputs at hand"] = table["full40, inputs at hand"]["ms"]
        own["input: the 2B's own coarse view"] = view
        figures[mode] = {"saved ms": round(saved)} | {n: round(ms / saved, 5) for n, ms in own.items()}
    return figures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--pages", type=Path, help="cache with pages of split test")
    parser.add_argument("--training-pages", type=Path, help="cache with pages of split train")
    parser.add_argument("--fit", type=int, default=40, help="training pages of each kind")
    parser.add_argument("--test", type=int, default=60, help="test pages of each kind")
    parser.add_argument("--clips", type=int, default=30, help="test clips; as many for training")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=1024, help="side of drawn pages in px")
    parser.add_argument("--keep", type=Path, help="folder for what was made of pages")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    started, maker = time.process_time(), Maker(args.keep)
    sets = {
        "drawn": (drawn_samples(args.fit, args.size, "train"), drawn_samples(args.test, args.size, "test"))
    }
    if args.pages and args.training_pages:
        sets["rendered"] = (
            page_samples(args.training_pages, "train", args.fit),
            page_samples(args.pages, "test", args.test),
        )
    sets = {name: tuple(list(part) for part in pair) for name, pair in sets.items()}
    maker.learn_basis([sample for pair in sets.values() for sample in pair[0]])
    sets["clips"] = tuple(part[: args.clips] for part in sets["drawn"])
    usual = "--fit {fit} --test {test} --clips {clips} --rounds {rounds} --size {size}".format(**vars(args))
    caches = "--pages CACHE --training-pages CACHE " * ("rendered" in sets)
    measured = times(maker, next(drawn_samples(1)), args.rounds)
    result = {
        "command": f"python runs/texture_groups.py OUT.json {caches}{usual}",
        "note": "CPU times on a machine that was busy with other work: read the ratios, not the milliseconds",
        "ranges": "of many rows some leave 0 by chance: a range of 90 % is wrong one time in ten",
        "rows of still pages": "temporal groups but the attention history are the same everywhere and left out",
        "ms": measured,
        "share of the time saved in the 2B shape": shares(measured),
    }
    print(json.dumps(result, indent=1), flush=True)
    for name, pair in sets.items():
        splits = zip(("train", "test"), pair, strict=True)
        pan = PAN if name == "clips" else None
        training, test = (list(maker.pages(f"{name}-{split}", part, pan)) for split, part in splits)
        if name == "clips":
            names = [BASE, *(f"{BASE} + {group}" for group in TEMPORAL), "full20", "full40"]
        else:
            still = {f"{BASE} + {group}" for group in TEMPORAL if group != "attention_memory"}
            names = [row for row in rows() if row not in still]
        facts = {"training pages": len(training), "pages": len(test), "questions": sum(map(len, test))}
        result[name] = facts | {"recall": compared(training, test, names)}
        result["CPU seconds, without what was kept"] = round(time.process_time() - started)
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(name, facts)
        for row, kinds in result[name]["recall"].items():
            cells = (f"{kinds[k]['64']['recall']:.3f} ({kinds[k]['64'].get('gain', 0):+.3f})" for k in kinds)
            print(f"  {row:32}", *cells, flush=True)


if __name__ == "__main__":
    main()
