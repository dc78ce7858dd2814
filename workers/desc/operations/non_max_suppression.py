"""Non-maximum suppression: the best boxes of each class, without those that overlap a better one."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class NonMaxSuppression(OpDesc):
    """Choose boxes by score, for each image and each of its classes, and leave out those that overlap a chosen one.

    ``boxes`` (images, boxes, 4) have two opposite corners each, or with ``center_point`` a centre and a size. ``scores`` are
    (images, classes, boxes). ``limits`` are three numbers: how many boxes a class may have, the intersection over union
    that another box of its class may have at most with a chosen one, and the score that a box must exceed.

    A row of ``indices`` is image, class and box, the images in order, their classes in order, the boxes by falling score, the
    first of equal ones first. There is room for ``most`` boxes a class; ``count`` is the number of rows that are used, the
    others are zeros.
    """

    kind: ClassVar[str] = "non_max_suppression"
    boxes: MemoryDesc
    scores: MemoryDesc
    limits: MemoryDesc
    indices: MemoryDesc
    count: MemoryDesc
    most: int
    center_point: bool = False

    def __post_init__(self) -> None:
        boxes, scores = self.boxes.dims, self.scores.dims
        require(len(boxes) == 3 and boxes[2] == 4, "boxes", f"expect (images, boxes, 4), got {boxes}")
        fits = len(scores) == 3 and (scores[0], scores[2]) == boxes[:2]
        require(fits, "scores", f"expect ({boxes[0]}, classes, {boxes[1]}), got {scores}")
        require(self.limits.dims == (3,), "limits", f"expect (3,), got {self.limits.dims}")
        require(1 <= self.most <= boxes[1], "most", f"expect 1..{boxes[1]}, got {self.most}")
        expected = (scores[0] * scores[1] * self.most, 3)
        require(self.indices.dims == expected, "indices", f"expect {expected}, got {self.indices.dims}")
        require(self.count.dims == (1,), "count", f"expect (1,), got {self.count.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {
            Arg.SRC: self.boxes, Arg.SRC_1: self.scores, Arg.SRC_2: self.limits, Arg.DST: self.indices, Arg.DST_1: self.count
        }  # fmt: skip
