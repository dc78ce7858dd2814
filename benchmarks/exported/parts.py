"""Modules that neither torchvision nor transformers have, and wrappers with tensors as arguments and results."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchvision.ops import nms
from transformers.cache_utils import DynamicCache


class Outputs(nn.Module):
    """Return the first results of a module of transformers as tensors."""

    def __init__(self, module: nn.Module, count: int) -> None:
        super().__init__()
        self.module = module
        self.count = count

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """Compute the module, with a mask if it is given."""
        found = self.module(x) if mask is None else self.module(x, attention_mask=mask)
        return tuple(found.to_tuple()[: self.count])


class CachedDecoder(nn.Module):
    """A decoder whose cache of keys and values is a list of tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Return the logits, and the keys and values of all tokens."""
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.module(
            input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True, return_dict=True
        )
        kept = [each for layer in found.past_key_values.layers for each in (layer.keys, layer.values)]
        return (found.logits, *kept)


class Block(nn.Sequential):
    """Two convolutions with batch normalization."""

    def __init__(self, inputs: int, outputs: int) -> None:
        layers: list[nn.Module] = []
        for wide in (inputs, outputs):
            layers += [nn.Conv2d(wide, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """Images that shrink and grow again, by a transposed convolution and by interpolation in turn."""

    def __init__(self, wide: int, depth: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(Block(3 if i == 0 else wide << i - 1, wide << i) for i in range(depth))
        self.low = Block(wide << depth - 1, wide << depth)
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(wide << i + 1, wide << i, 2, stride=2) if i % 2 else
            nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
                nn.Conv2d(wide << i + 1, wide << i, 1),
            )
            for i in range(depth)
        )  # fmt: skip
        self.up = nn.ModuleList(Block(wide << i + 1, wide << i) for i in range(depth))
        self.last = nn.Conv2d(wide, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return two scores for each place."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.low(x)
        for grow, block, before in reversed(list(zip(self.grow, self.up, kept, strict=True))):
            x = block(torch.cat([before, grow(x)], 1))
        found: Tensor = self.last(x)
        return found


class Detector(nn.Module):
    """A head of boxes on a grid, as YOLO has them, and the suppression of boxes that overlap a better one."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            *(
                layer
                for i in range(3)
                for layer in (nn.Conv2d(3 if i == 0 else wide, wide, 3, 2, 1), nn.BatchNorm2d(wide), nn.SiLU())
            ),
            nn.MaxPool2d(5, 1, 2),
        )
        self.head = nn.Conv2d(wide, 6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes, scores, and the places of the boxes that are kept of the first image."""
        found = self.head(self.backbone(x))
        batch, _, height, width = found.shape
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack((columns, rows), -1).reshape(1, -1, 2).to(x.dtype)
        flat = found.reshape(batch, 6, -1).permute(0, 2, 1)
        center = (flat[..., :2].sigmoid() * 2 - 0.5 + grid) * 8
        size = (flat[..., 2:4].sigmoid() * 2) ** 2 * 16
        boxes = torch.cat((center - size / 2, center + size / 2), -1)
        scores = flat[..., 4].sigmoid() * flat[..., 5].sigmoid()
        return boxes, scores, nms(boxes[0], scores[0], 0.5)


class Tagger(nn.Module):
    """Two recurrent layers in both directions between an embedding and labels."""

    def __init__(self, kind: str, vocabulary: int, wide: int) -> None:
        super().__init__()
        layer: Any = nn.LSTM if kind == "lstm" else nn.GRU
        self.words = nn.Embedding(vocabulary, wide)
        self.network = layer(wide, wide, num_layers=2, batch_first=True, bidirectional=True)
        self.labels = nn.Linear(2 * wide, 5)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the scores of labels."""
        found: Tensor = self.labels(self.network(self.words(input_ids))[0])
        return found


class Pictures(nn.Module):
    """Return the scores of a network of torchvision that has a class for each place."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Compute the module."""
        found: Tensor = self.module(x)["out"]
        return found


class Flow(nn.Module):
    """Return the last flow between an image and its mirror image."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Compute the module, with fewer turns than it has by default."""
        found: Tensor = self.module(x, x.flip(3), num_flow_updates=4)[-1]
        return found


class EncoderDecoder(nn.Module):
    """Return the first result of a decoder that reads what an encoder found."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        """Compute the decoder without a cache."""
        found = self.decoder(input_ids=input_ids, encoder_hidden_states=encoder_hidden_states, use_cache=False)
        states: Tensor = found.last_hidden_state
        return states


class Pair(nn.Module):
    """Return the scores of texts and images for each other."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Tensor, attention_mask: Tensor, pixel_values: Tensor) -> tuple[Tensor, ...]:
        """Compute scores and both embeddings."""
        found = self.module(input_ids=input_ids, attention_mask=attention_mask, pixel_values=pixel_values)
        return found.logits_per_image, found.text_embeds, found.image_embeds


class Stack(nn.Module):
    """Layers of PyTorch's own between an embedding and scores."""

    def __init__(self, kind: str, vocabulary: int, wide: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, wide)
        self.kind = kind
        if kind == "transformer":
            layer = nn.TransformerEncoderLayer(wide, 4, 4 * wide, batch_first=True, norm_first=True, activation="gelu")
            self.network: Any = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        else:
            kinds: dict[str, Any] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
            self.network = kinds[kind](wide, wide, num_layers=3)
        self.scores = nn.Linear(wide, 5)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return scores; recurrent layers have the steps before the batch."""
        words = self.words(input_ids)
        if attention_mask is not None:
            found: Tensor = self.network(words, src_key_padding_mask=attention_mask == 0)
        else:
            found = self.network(words.transpose(0, 1))[0]
        scores: Tensor = self.scores(found)
        return scores
