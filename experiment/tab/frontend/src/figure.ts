// A chart on a canvas: axes, lines, marks that can be pointed at and opened, also with the keyboard.
import {colour, make} from './dom';
import type {Shape} from './palette';
import type {Scale} from './scale';

export interface Mark {
  x: number;
  y: number;
  shape: Shape;
  colour: string;
  text: string;
  trial?: number;
}

export interface Line {
  points: [x: number, y: number][];
  colour: string;
  width?: number;
  stepped?: boolean;
}

/** A coloured rectangle, in units of the axes. */
export interface Cell {
  x: number;
  y: number;
  width: number;
  height: number;
  colour: string;
}

export interface Drawing {
  x: Scale;
  y: Scale;
  marks?: Mark[];
  lines?: Line[];
  cells?: Cell[];
  /** What is not shown, in a few words. */
  note?: string;
  /** Arrows from one place to another. */
  arrows?: [fromX: number, fromY: number, toX: number, toY: number, colour: string][];
}

const NEAR = 12; // pixels
const TOP = 22;
const BOTTOM = 34;

export class Figure {
  private readonly canvas: HTMLCanvasElement;
  private readonly tip: HTMLElement;
  private drawing?: Drawing;
  private left = 60;
  private chosen = -1;

  /** Add a chart to a box, which gives it its size. The label names the chart for screen readers. */
  constructor(readonly box: HTMLElement, private label: string, private readonly open?: (trial: number) => void) {
    box.classList.add('figure');
    this.canvas = make('canvas', box, '', {role: 'img', tabindex: 0});
    this.tip = make('div', box, '', {class: 'tip', role: 'status'});
    this.canvas.onpointermove = (event) => this.choose(this.nearest(event.offsetX, event.offsetY));
    this.canvas.onpointerleave = () => this.choose(-1);
    this.canvas.onclick = () => this.openChosen();
    this.canvas.onkeydown = (event) => this.key(event);
  }

  draw(drawing: Drawing, label = this.label): void {
    const trial = this.drawing?.marks?.[this.chosen]?.trial;
    this.drawing = drawing;
    // The chosen mark may have another place in the list now.
    this.chosen = trial === undefined ? -1 : (drawing.marks ?? []).findIndex((mark) => mark.trial === trial);
    this.label = label;
    const note = drawing.note ? ` ${drawing.note}.` : '';
    this.canvas.setAttribute('aria-label', `${label}.${note} ${drawing.x.title} and ${drawing.y.title}, ${drawing.marks?.length ?? 0} points; arrow keys go from one to the next.`);
    this.paint();
    this.tell();
  }

  private paint(): void {
    const {drawing, canvas} = this;
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    if (!drawing || !width || !height) return;
    const brush = prepare(canvas, width, height);
    this.left = 16 + Math.max(24, ...drawing.y.ticks.map((tick) => brush.measureText(tick.text).width));
    this.axes(brush, width, height, drawing);
    brush.save();
    brush.beginPath();
    brush.rect(this.left - 6, TOP - 6, width - this.left, height - TOP - BOTTOM + 12);
    brush.clip();
    for (const cell of drawing.cells ?? []) {
      const [x, y] = this.place(cell.x, cell.y + cell.height);
      const [right, bottom] = this.place(cell.x + cell.width, cell.y);
      const [fromX, fromY] = [Math.round(x), Math.round(y)]; // whole pixels: neighbours neither overlap nor leave gaps
      brush.fillStyle = cell.colour;
      brush.fillRect(fromX, fromY, Math.round(right) - fromX, Math.round(bottom) - fromY);
    }
    for (const line of drawing.lines ?? []) this.line(brush, line);
    for (const arrow of drawing.arrows ?? []) this.arrow(brush, arrow);
    for (const mark of drawing.marks ?? []) {
      const [x, y] = this.place(mark.x, mark.y);
      shape(brush, mark.shape, x, y, mark.colour, drawing.marks!.length > 3000 ? 2 : 3.5);
    }
    const chosen = drawing.marks?.[this.chosen];
    if (chosen) {
      const [x, y] = this.place(chosen.x, chosen.y);
      shape(brush, 'ring', x, y, colour('fg'), 7);
    }
    brush.restore();
  }

  private axes(brush: CanvasRenderingContext2D, width: number, height: number, {x, y, note}: Drawing): void {
    brush.fillStyle = colour('soft');
    brush.strokeStyle = colour('line');
    brush.textBaseline = 'middle';
    let free = Infinity;
    for (const tick of y.ticks) {
      const [, top] = this.place(0, tick.at);
      if (Math.abs(free - top) < 13) continue;
      free = top;
      line(brush, this.left, top, width - 8, top);
      brush.textAlign = 'right';
      brush.fillText(tick.text, this.left - 6, top);
    }
    free = -Infinity;
    brush.textAlign = 'center';
    for (const tick of x.ticks) {
      const [at] = this.place(tick.at, 0);
      line(brush, at, TOP, at, height - BOTTOM);
      const half = brush.measureText(tick.text).width / 2;
      if (at - half < free) continue;
      free = at + half + 8;
      brush.fillText(tick.text, Math.min(at, width - half - 2), height - BOTTOM + 10);
    }
    brush.fillStyle = colour('fg');
    brush.fillText(x.title, (this.left + width) / 2, height - 8);
    brush.textAlign = 'left';
    brush.fillText(y.title, 4, 8);
    brush.fillStyle = colour('soft');
    brush.textAlign = 'right';
    brush.fillText(note ?? '', width - 8, 8);
  }

  private line(brush: CanvasRenderingContext2D, {points, colour: stroke, width = 2, stepped}: Line): void {
    brush.strokeStyle = stroke;
    brush.lineWidth = width;
    brush.beginPath();
    let before = 0;
    points.forEach(([x, y], index) => {
      const [at, top] = this.place(x, y);
      if (index && stepped) brush.lineTo(at, before);
      brush.lineTo(at, top);
      before = top;
    });
    brush.stroke();
    brush.lineWidth = 1;
  }

  private arrow(brush: CanvasRenderingContext2D, [fromX, fromY, toX, toY, stroke]: NonNullable<Drawing['arrows']>[number]): void {
    const [x, y] = this.place(fromX, fromY);
    const [endX, endY] = this.place(toX, toY);
    const turn = Math.atan2(endY - y, endX - x);
    brush.strokeStyle = stroke;
    brush.beginPath();
    brush.moveTo(x, y);
    brush.lineTo(endX, endY);
    for (const side of [-0.4, 0.4]) {
      brush.moveTo(endX, endY);
      brush.lineTo(endX - 8 * Math.cos(turn + side), endY - 8 * Math.sin(turn + side));
    }
    brush.stroke();
  }

  private place(x: number, y: number): [number, number] {
    const [width, height] = [this.box.clientWidth - this.left - 12, this.box.clientHeight - TOP - BOTTOM];
    return [this.left + x * width, TOP + (1 - y) * height];
  }

  private nearest(x: number, y: number): number {
    let [found, least] = [-1, NEAR * NEAR];
    this.drawing?.marks?.forEach((mark, index) => {
      const [atX, atY] = this.place(mark.x, mark.y);
      const distance = (atX - x) ** 2 + (atY - y) ** 2;
      if (distance < least) [found, least] = [index, distance];
    });
    return found;
  }

  private choose(index: number): void {
    if (index === this.chosen) return;
    this.chosen = index;
    this.paint();
    this.tell();
  }

  /** Describe the chosen mark beside it. */
  private tell(): void {
    const mark = this.drawing?.marks?.[this.chosen];
    this.canvas.style.cursor = mark?.trial !== undefined && this.open ? 'pointer' : '';
    const text = mark?.text ?? '';
    if (this.tip.textContent !== text) this.tip.textContent = text; // screen readers say what is set
    if (mark) {
      const [x, y] = this.place(mark.x, mark.y);
      const right = x > this.box.clientWidth / 2;
      Object.assign(this.tip.style, {top: `${y + 8}px`, left: right ? '' : `${x + 10}px`, right: right ? `${this.box.clientWidth - x + 10}px` : ''});
    }
    this.tip.hidden = !mark;
  }

  private openChosen(): void {
    const trial = this.drawing?.marks?.[this.chosen]?.trial;
    if (trial !== undefined) this.open?.(trial);
  }

  private key(event: KeyboardEvent): void {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const marks = this.drawing?.marks ?? [];
    if ((step === undefined && event.key !== 'Enter') || !marks.length) return;
    event.preventDefault(); // Enter would press the dialog's button, too
    if (step === undefined) return this.openChosen();
    const from = step < 0 ? Math.max(this.chosen, 0) : this.chosen; // the first step back leads to the last mark
    this.choose((from + step + marks.length) % marks.length);
  }
}

/** Size a canvas for the screen's pixels, empty it, and return its brush. */
export function prepare(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  const brush = canvas.getContext('2d')!;
  brush.scale(ratio, ratio);
  brush.font = '11px Roboto, system-ui, sans-serif';
  return brush;
}

export function line(brush: CanvasRenderingContext2D, x: number, y: number, toX: number, toY: number): void {
  brush.beginPath();
  brush.moveTo(x, y);
  brush.lineTo(toX, toY);
  brush.stroke();
}

export function shape(brush: CanvasRenderingContext2D, kind: Shape, x: number, y: number, paint: string, size: number): void {
  brush.fillStyle = brush.strokeStyle = paint;
  brush.beginPath();
  if (kind === 'cross') {
    brush.moveTo(x - size, y - size);
    brush.lineTo(x + size, y + size);
    brush.moveTo(x + size, y - size);
    brush.lineTo(x - size, y + size);
    brush.stroke();
  } else if (kind === 'diamond') {
    for (const [dx, dy] of [[0, -1], [1, 0], [0, 1], [-1, 0]]) brush.lineTo(x + dx * size * 1.3, y + dy * size * 1.3);
    brush.fill();
  } else if (kind === 'star') {
    for (let corner = 0; corner < 10; corner++) {
      const reach = size * (corner % 2 ? 1 : 2.2);
      brush.lineTo(x + reach * Math.sin((corner * Math.PI) / 5), y - reach * Math.cos((corner * Math.PI) / 5));
    }
    brush.fill();
  } else {
    brush.arc(x, y, size, 0, 2 * Math.PI);
    if (kind === 'ring') brush.stroke();
    else brush.fill();
  }
}
