"""The table of families: a row for each, in the order in which they are listed.

A family laid out like another one is a row with the same adapter. A new layout needs a class in `qwen`,
`raster`, `square` or `tiled`. Traits: any attribute of the adapter's class.
"""

from __future__ import annotations

from typing import Any

from arr_coc.families.generic import GenericAdapter, PaliGemmaAdapter
from arr_coc.families.qwen import (
    Cosmos3EdgeAdapter,
    Dots3NoteAdapter,
    Glm4vAdapter,
    PaddleOCRVLAdapter,
    Qwen2_5VLAdapter,
    Qwen3VLAdapter,
)
from arr_coc.families.raster import (
    Apertus1p5Adapter,
    Gemma4Adapter,
    Gemma4UnifiedAdapter,
    HunyuanVLAdapter,
    HYV4VLAdapter,
    KimiK25Adapter,
    LightOnOcrAdapter,
    Mistral3Adapter,
    MuseAdapter,
)
from arr_coc.families.registry import Family
from arr_coc.families.square import LlavaAdapter
from arr_coc.families.tiled import (
    AyaVisionAdapter,
    Cohere2VisionAdapter,
    GraniteDoclingAdapter,
    Idefics3Adapter,
    InternVLAdapter,
    Lfm2VLAdapter,
    LlavaNextAdapter,
    LlavaOnevisionAdapter,
    MiniCPMVAdapter,
    Molmo2Adapter,
    Ovis2Adapter,
    Step3p7Adapter,
)

HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # pixels normalised to [-1, 1]
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
SOUND: dict[str, Any] = {"sound": True, "clips": False}
RECURRENT = {"recurrent": True}
LAYERS = {"layer_by_layer": True}
WINDOW = "dropping equals masking while the prompt fits the attention window"
VIEW = "the view of the whole, behind the tiles, always stays"
CONVOLUTIONS = "convolutions have no masked equivalent of a dropped token"
THINKER = "wrap its `thinker`; sound always stays"
PICKS = "dropping equals masking while a token may pick every other"
NEWLINES = f"newlines stay; {PICKS}"

TABLE = (
    Family("Qwen3-VL", ("qwen3_vl", "qwen3_vl_moe"), Qwen3VLAdapter, traits=LAYERS),
    Family("Cosmos 3", ("cosmos3_omni",), Qwen3VLAdapter, traits=LAYERS),
    Family(
        "Cosmos 3 Edge",
        ("cosmos3_edge",),
        Cosmos3EdgeAdapter,
        "with `processor.return_mm_token_type_ids = True`, which its own model needs",
        HALF,
    ),
    Family("Qwen2.5-VL, Qwen2-VL", ("qwen2_5_vl", "qwen2_vl"), Qwen2_5VLAdapter, traits=LAYERS),
    Family(
        "Cohere Compass, North Micro Vision",
        ("cohere_compass",),
        Qwen3VLAdapter,
        f"from transformers 5.24 on; {WINDOW}",
    ),
    # A recurrent state has no mask, so dropping a token is not the same as masking it.
    Family(
        "Qwen3.5, Qwen4-Exp",
        ("qwen3_5", "qwen3_5_moe", "qwen4_exp"),
        Qwen3VLAdapter,
        "its recurrent layers have no masked equivalent of a dropped token",
        RECURRENT,
    ),
    Family("Qwen2.5-Omni", ("qwen2_5_omni_thinker",), Qwen2_5VLAdapter, THINKER, SOUND),
    Family("Qwen3-Omni", ("qwen3_omni_moe_thinker",), Qwen3VLAdapter, THINKER, SOUND),
    Family("GLM-4V, GLM-OCR", ("glm4v", "glm4v_moe", "glm46v", "glm_ocr", "glmga"), Glm4vAdapter),
    # Frames have placeholders of images and no three-row positions, so clips can't be told from images. The
    # tower shrinks by a convolution between its blocks and its merger, so it has no halves.
    Family(
        "GLM-5 Next",
        ("glm5_next",),
        Qwen2_5VLAdapter,
        "its recurrent layers have no masked equivalent of a dropped token; no clips",
        {"recurrent": True, "clips": False, "halves": False},
    ),
    # Its `get_rope_index` only raises; it ignores the kinds of tokens that tell frames from images.
    Family(
        "EXAONE 4.5",
        ("exaone4_5",),
        Qwen2_5VLAdapter,
        WINDOW,
        {"plain_positions": True, "ignores_positions": True, "clips": False},
    ),
    Family(
        "Dots 3 Note",
        ("dots3_note",),
        Dots3NoteAdapter,
        f"from transformers 5.24 on; {PICKS}; sound always stays; no clips",
    ),
    Family("PaddleOCR-VL", ("paddleocr_vl",), PaddleOCRVLAdapter),
    Family("Hunyuan 4 VL", ("hy_v4_vl",), HYV4VLAdapter, f"from transformers 5.24 on; {NEWLINES}"),
    # Its positions have as many rows as the rotary embedding has axes, and none that numbers the columns.
    Family(
        "Hunyuan VL, HunyuanOCR",
        ("hunyuan_vl",),
        HunyuanVLAdapter,
        "newlines, and the tokens that begin and end a picture, stay",
        {"text_row": False},
    ),
    Family(
        "Apertus 1.5",
        ("apertus1p5",),
        Apertus1p5Adapter,
        "from transformers 5.24 on; the tokens between rows, and sound, always stay",
        HALF | {"name_marks": ("boi_token", "image_wrapper_token")},
    ),
    Family("Gemma 3", ("gemma3",), GenericAdapter, WINDOW, HALF),
    Family("Gemma 4", ("gemma4",), Gemma4Adapter, WINDOW),
    Family("Gemma 4 Unified", ("gemma4_unified",), Gemma4UnifiedAdapter, WINDOW),
    Family(
        "PaliGemma",
        ("paligemma",),
        PaliGemmaAdapter,
        "without a chat template of its own `generate` alone; the image is read anew for each question",
        HALF | {"prefix": True},
    ),
    Family("InternVL", ("internvl", "qianfan_ocr"), InternVLAdapter, VIEW, IMAGENET),
    Family("Idefics3, SmolVLM", ("idefics3", "smolvlm"), Idefics3Adapter, VIEW, HALF),
    Family(
        "Granite Docling",
        ("granite_docling",),
        GraniteDoclingAdapter,
        f"from transformers 5.24 on; {VIEW}",
    ),
    Family(
        "Aya Vision",
        ("aya_vision",),
        AyaVisionAdapter,
        f"{VIEW}; {WINDOW}",
        HALF | {"name_marks": ("start_of_img_token", "end_of_img_token")},
    ),
    Family("Command A Vision", ("cohere2_vision",), Cohere2VisionAdapter, f"{VIEW}; {WINDOW}", HALF),
    Family(
        "LFM2-VL",
        ("lfm2_vl",),
        Lfm2VLAdapter,
        f"{CONVOLUTIONS}; the view of the whole always stays",
        HALF | RECURRENT,
    ),
    # The generic layout: cells of 2x2 patches in the order of Qwen's, positions counted along the prompt.
    Family(
        "LFM3-VL",
        ("lfm3_vl",),
        GenericAdapter,
        f"from transformers 5.24 on; {CONVOLUTIONS}",
        {"recurrent": True, "casts": False},
    ),
    Family("Ovis2", ("ovis2",), Ovis2Adapter, "the view of the whole, ahead of the tiles, always stays"),
    Family(
        "Mistral Small 3, Large 4",
        ("mistral3", "mistral_large4"),
        Mistral3Adapter,
        "the tokens between rows always stay; Large 4 picks what it reads, of what is kept",
    ),
    Family("LightOnOCR", ("lighton_ocr",), LightOnOcrAdapter),
    Family(
        "MiniCPM-V",
        ("minicpmv4_6", "minicpmv4_7"),
        MiniCPMVAdapter,
        "the view of the whole, ahead of the slices, always stays; recurrent as Qwen3.5",
        HALF | {"recurrent": True, "name_marks": ("image_id_start_token", "image_id_end_token")},
    ),
    Family(
        "Molmo 2",
        ("molmo2",),
        Molmo2Adapter,
        "the view of the whole and the tokens after rows always stay",
        HALF,
    ),
    Family("Kimi K2.5", ("kimi_k25",), KimiK25Adapter, traits=HALF | {"casts": False}),
    Family("Muse Glimmer", ("muse_glimmer",), MuseAdapter, f"from transformers 5.24 on; {WINDOW}"),
    Family(
        "Muse Spark",
        ("muse_spark",),
        MuseAdapter,
        f"from transformers 5.24 on; {WINDOW}; sound always stays",
    ),
    Family(
        "Step 3.7",
        ("step3p7",),
        Step3p7Adapter,
        "the view of the whole, behind the windows, always stays",
    ),
    Family(
        "LLaVA 1.5",
        ("llava",),
        LlavaAdapter,
        "the view of the whole stays beside the crops; no checkpoint was taught to read both",
        {"middle_square": True, "layer_by_layer": True},
    ),
    # Without the generic adapter's check: each cell of a convolutional tower's last layers sees nearly all of
    # the picture, so in a model of random weights no cell changes the most with its own quarter.
    Family("FastVLM", ("fast_vlm",), GenericAdapter, "with `timm` installed"),
    Family(
        "LLaVA-NeXT",
        ("llava_next",),
        LlavaNextAdapter,
        "reads fine tiles by itself, all of them; base view and newline tokens always stay",
    ),
    Family(
        "LLaVA-OneVision",
        ("llava_onevision",),
        LlavaOnevisionAdapter,
        "reads fine tiles by itself, all of them; base view and newline tokens always stay",
        HALF,
    ),
)
