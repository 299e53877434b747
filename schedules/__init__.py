"""The schedules of the field, one short file each. Importing this package registers them all."""

from schedules.asymmetric_chimera import asymmetric_chimera
from schedules.chimera import chimera
from schedules.dualpipe import dualpipe
from schedules.dualpipe_v import dualpipe_v
from schedules.eager_1f1b import eager_1f1b
from schedules.gpipe import gpipe
from schedules.hanayo import hanayo
from schedules.interleaved_1f1b import interleaved_1f1b
from schedules.interleaved_zb import interleaved_zb
from schedules.local_accumulation import local_accumulation
from schedules.looped_bfs import looped_bfs
from schedules.one_f_one_b import one_f_one_b
from schedules.pipedream import pipedream
from schedules.pipedream_2bw import pipedream_2bw
from schedules.registry import NamedSchedule, every, find, named
from schedules.v_half import v_half
from schedules.v_min import v_min
from schedules.v_zb import v_zb
from schedules.zb_auto import zb_auto
from schedules.zb_h1 import zb_h1
from schedules.zb_h2 import zb_h2
from schedules.zb_v import zb_v

__all__ = [
    "NamedSchedule",
    "asymmetric_chimera",
    "chimera",
    "dualpipe",
    "dualpipe_v",
    "eager_1f1b",
    "every",
    "find",
    "gpipe",
    "hanayo",
    "interleaved_1f1b",
    "interleaved_zb",
    "local_accumulation",
    "looped_bfs",
    "named",
    "one_f_one_b",
    "pipedream",
    "pipedream_2bw",
    "v_half",
    "v_min",
    "v_zb",
    "zb_auto",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
