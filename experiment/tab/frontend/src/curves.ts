// Line charts by uPlot: curves over steps, with a legend that shows the values under the pointer.
import uPlot from 'uplot';
import {colour} from './dom';
import {number} from './format';

const WHOLE = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((power) => [1, 2, 5].map((factor) => factor * 10 ** power));

export interface Curve {
  name: string;
  colour: string;
  x: number[];
  y: (number | null)[];
  stepped?: boolean;
}

/** The last point of a line, where it ends in a step. */
function last(chart: uPlot, line: number): number[] {
  const values = chart.data[line];
  for (let index = values.length - 1; index >= 0; index--) if (values[index] !== null && values[index] !== undefined) return [index];
  return [];
}

/** Draw curves into a box, which gives the chart its size; what was there goes. */
export function drawCurves(box: HTMLElement, curves: Curve[], title: string, limits?: [number, number]): uPlot | null {
  box.replaceChildren();
  if (!curves.length || !box.clientWidth) return null;
  const tables = curves.map((curve) => [curve.x, curve.y] as uPlot.AlignedData);
  const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
  const whole = curves.every((curve) => curve.x.every(Number.isInteger));
  const axis = {size: 28, stroke: () => colour('soft'), grid: {stroke: () => colour('line'), width: 1}, ticks: {show: false}};
  const options: uPlot.Options = {
    width: box.clientWidth,
    height: Math.max(80, box.clientHeight - 24 - 18 * Math.floor(curves.length / 4)),
    scales: {x: {time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high])}, y: limits ? {range: () => limits} : {}},
    axes: [whole ? {...axis, incrs: WHOLE} : axis, {...axis, size: 64, values: (_, values) => values.map(number)}],
    series: [
      {label: title, value: (_, value) => (value === null ? '' : number(value))},
      ...curves.map((curve) => ({
        label: curve.name,
        stroke: curve.colour,
        width: 2,
        spanGaps: true,
        points: curve.stepped ? {show: true, size: 7, fill: curve.colour, filter: last} : {show: curve.x.length === 1 ? true : undefined},
        paths: curve.stepped ? uPlot.paths.stepped!({align: 1}) : undefined,
        value: (_: uPlot, value: number | null) => (value === null ? '' : number(value)),
      })),
    ],
  };
  return new uPlot(options, data, box);
}
