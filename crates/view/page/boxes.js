// Fills boxes of pixels. A timeline has thousands of them, and a canvas takes longer than a frame
// to fill as many by itself.

/** The pixels of colours, by their name in CSS. @type {Map<string, number>} */
const pixels = new Map();
/** Forgets the pixels of colours beyond this number. */
const MAX_COLORS = 10_000;
/** @type {CanvasRenderingContext2D | null} */
let probe = null;

/**
 * Returns the four bytes of a pixel of a colour.
 * @param {string} color
 */
function pixelOf(color) {
  let pixel = pixels.get(color);
  if (pixel === undefined) {
    probe ??= document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    if (!probe) throw new Error('no canvas');
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = color;
    probe.fillRect(0, 0, 1, 1);
    pixel = new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
    if (pixels.size >= MAX_COLORS) pixels.clear();
    pixels.set(color, pixel);
  }
  return pixel;
}

/** Boxes over a picture, whose edges are those of pixels, and what is drawn on top of them. */
export class BoxLayer {
  #canvas = document.createElement('canvas');
  /** @type {ImageData | null} */
  #image = null;
  #pixels = new Uint32Array();
  #ratio = 1;
  /** The pixels that boxes may cover. */
  #clip = { left: 0, top: 0, right: 0, bottom: 0 };
  /** @type {((context: CanvasRenderingContext2D) => void)[]} */
  #onTop = [];

  /**
   * Begins an empty layer of the size of a picture.
   * @param {CanvasRenderingContext2D} context
   */
  begin(context) {
    const { width, height } = context.canvas;
    this.#ratio = context.getTransform().a;
    if (this.#image?.width !== width || this.#image.height !== height) {
      this.#image = new ImageData(width, height);
      this.#pixels = new Uint32Array(this.#image.data.buffer);
      this.#canvas.width = width;
      this.#canvas.height = height;
    } else {
      this.#pixels.fill(0);
    }
    this.#onTop = [];
  }

  /**
   * Limits the following boxes.
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  clip(x, y, width, height) {
    this.#clip = {
      left: Math.max(0, Math.round(x * this.#ratio)),
      top: Math.max(0, Math.round(y * this.#ratio)),
      right: Math.min(this.#canvas.width, Math.round((x + width) * this.#ratio)),
      bottom: Math.min(this.#canvas.height, Math.round((y + height) * this.#ratio)),
    };
  }

  /**
   * Fills a box, of at least one pixel.
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   * @param {string} color
   */
  fill(x, y, width, height, color) {
    const [clip, ratio, stride] = [this.#clip, this.#ratio, this.#canvas.width];
    const [first, line] = [Math.round(x * ratio), Math.round(y * ratio)];
    const left = Math.max(clip.left, first);
    const right = Math.min(clip.right, Math.max(first + 1, Math.round((x + width) * ratio)));
    const top = Math.max(clip.top, line);
    const bottom = Math.min(clip.bottom, Math.max(line + 1, Math.round((y + height) * ratio)));
    const pixel = pixelOf(color);
    for (let row = top; row < bottom; row += 1) {
      const end = row * stride + right;
      for (let at = row * stride + left; at < end; at += 1) this.#pixels[at] = pixel;
    }
  }

  /**
   * Draws something on top of all boxes.
   * @param {(context: CanvasRenderingContext2D) => void} draw
   */
  onTop(draw) {
    this.#onTop.push(draw);
  }

  /**
   * Draws the layer into the picture.
   * @param {CanvasRenderingContext2D} context
   */
  end(context) {
    if (!this.#image) return;
    const layer = this.#canvas.getContext('2d', { willReadFrequently: true });
    if (!layer) throw new Error('no canvas');
    layer.putImageData(this.#image, 0, 0);
    context.drawImage(this.#canvas, 0, 0, this.#canvas.width / this.#ratio, this.#canvas.height / this.#ratio);
    this.#onTop.forEach((draw) => draw(context));
  }
}
