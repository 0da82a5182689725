"""The families of models that arr-coc knows: a file and a line each. An import of this registers them all."""

from __future__ import annotations

from arr_coc.seam.families.apertus1p5 import Apertus1p5Adapter
from arr_coc.seam.families.cohere import AyaVisionAdapter, Cohere2VisionAdapter
from arr_coc.seam.families.exaone4_5 import Exaone4_5Adapter
from arr_coc.seam.families.fast_vlm import FastVLMAdapter
from arr_coc.seam.families.gemma3 import Gemma3Adapter
from arr_coc.seam.families.gemma4 import Gemma4Adapter, Gemma4UnifiedAdapter
from arr_coc.seam.families.glm4v import Glm4vAdapter
from arr_coc.seam.families.glm5_next import Glm5NextAdapter
from arr_coc.seam.families.hunyuan_vl import HunyuanVLAdapter
from arr_coc.seam.families.hy_v4_vl import HYV4VLAdapter
from arr_coc.seam.families.idefics3 import Idefics3Adapter
from arr_coc.seam.families.internvl import InternVLAdapter
from arr_coc.seam.families.kimi_k25 import KimiK25Adapter
from arr_coc.seam.families.lfm2_vl import Lfm2VLAdapter
from arr_coc.seam.families.lfm3_vl import Lfm3VLAdapter
from arr_coc.seam.families.llava import LlavaAdapter
from arr_coc.seam.families.llava_next import LlavaNextAdapter, LlavaOnevisionAdapter
from arr_coc.seam.families.minicpm_v import MiniCPMVAdapter
from arr_coc.seam.families.mistral3 import Mistral3Adapter
from arr_coc.seam.families.molmo2 import Molmo2Adapter
from arr_coc.seam.families.omni import Qwen2_5OmniAdapter, Qwen3OmniAdapter
from arr_coc.seam.families.ovis2 import Ovis2Adapter
from arr_coc.seam.families.paddleocr_vl import PaddleOCRVLAdapter
from arr_coc.seam.families.paligemma import PaliGemmaAdapter
from arr_coc.seam.families.qwen2_5_vl import Qwen2_5VLAdapter
from arr_coc.seam.families.qwen3_5 import Qwen3_5Adapter
from arr_coc.seam.families.qwen3_vl import Qwen3VLAdapter
from arr_coc.seam.families.step3p7 import Step3p7Adapter
from arr_coc.seam.registry import register_family

register_family(Qwen3VLAdapter)
register_family(Qwen2_5VLAdapter)
register_family(Qwen3_5Adapter)
register_family(Qwen2_5OmniAdapter)
register_family(Qwen3OmniAdapter)
register_family(Glm4vAdapter)
register_family(Glm5NextAdapter)
register_family(Exaone4_5Adapter)
register_family(PaddleOCRVLAdapter)
register_family(HYV4VLAdapter)
register_family(HunyuanVLAdapter)
register_family(Apertus1p5Adapter)
register_family(Gemma3Adapter)
register_family(Gemma4Adapter)
register_family(Gemma4UnifiedAdapter)
register_family(PaliGemmaAdapter)
register_family(InternVLAdapter)
register_family(Idefics3Adapter)
register_family(AyaVisionAdapter)
register_family(Cohere2VisionAdapter)
register_family(Lfm2VLAdapter)
register_family(Lfm3VLAdapter)
register_family(Ovis2Adapter)
register_family(Mistral3Adapter)
register_family(MiniCPMVAdapter)
register_family(Molmo2Adapter)
register_family(KimiK25Adapter)
register_family(Step3p7Adapter)
register_family(LlavaAdapter)
register_family(FastVLMAdapter)
register_family(LlavaNextAdapter)
register_family(LlavaOnevisionAdapter)
