"""The 80 object categories of COCO and the supercategory of each (https://cocodataset.org/#explore)."""

from __future__ import annotations

_CATEGORIES = {
    "person": "person",
    "vehicle": "bicycle, car, motorcycle, airplane, bus, train, truck, boat",
    "outdoor": "traffic light, fire hydrant, stop sign, parking meter, bench",
    "animal": "bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe",
    "accessory": "backpack, umbrella, handbag, tie, suitcase",
    "sports": "frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, "
    "tennis racket",
    "kitchen": "bottle, wine glass, cup, fork, knife, spoon, bowl",
    "food": "banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake",
    "furniture": "chair, couch, potted plant, bed, dining table, toilet",
    "electronic": "tv, laptop, mouse, remote, keyboard, cell phone",
    "appliance": "microwave, oven, toaster, sink, refrigerator",
    "indoor": "book, clock, vase, scissors, teddy bear, hair drier, toothbrush",
}
CATEGORIES_OF = {supercategory: tuple(names.split(", ")) for supercategory, names in _CATEGORIES.items()}
SUPERCATEGORY_OF = {category: supercategory for supercategory, names in CATEGORIES_OF.items() for category in names}
