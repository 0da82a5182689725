"""The built-in channel groups, one file each.

Importing a file registers its group. To add a group: write its file here, and its line below.
"""

from __future__ import annotations

from arr_coc.choose.texture.groups import attention_memory as attention_memory
from arr_coc.choose.texture.groups import centre_bias as centre_bias
from arr_coc.choose.texture.groups import change_memory as change_memory
from arr_coc.choose.texture.groups import clusters as clusters
from arr_coc.choose.texture.groups import components as components
from arr_coc.choose.texture.groups import conspicuity as conspicuity
from arr_coc.choose.texture.groups import eccentricity as eccentricity
from arr_coc.choose.texture.groups import edge_distance as edge_distance
from arr_coc.choose.texture.groups import edge_pair as edge_pair
from arr_coc.choose.texture.groups import frame_change as frame_change
from arr_coc.choose.texture.groups import grouping as grouping
from arr_coc.choose.texture.groups import motion as motion
from arr_coc.choose.texture.groups import passes as passes
from arr_coc.choose.texture.groups import position as position
from arr_coc.choose.texture.groups import relevance_memory as relevance_memory
from arr_coc.choose.texture.groups import rgb as rgb
from arr_coc.choose.texture.groups import saliency as saliency
from arr_coc.choose.texture.groups import sobel as sobel
from arr_coc.choose.texture.groups import text_mask as text_mask
