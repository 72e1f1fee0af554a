// Draws a dashboard from its JSON and from what Prometheus answered to its queries. Field configuration, overrides,
// transformations, units, colours, time series, tables and numbers are Grafana's own code (@grafana/data,
// @grafana/ui). The grid, the rows' headings and the state timeline are drawn here: Grafana publishes none of these.

import type { DataFrame, Field } from '@grafana/data';
import React from 'react';
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';

// Required, not imported: Grafana's ES modules take the default exports of CommonJS packages in a way that esbuild
// reads otherwise.
declare const require: (name: string) => any;
const {
  applyFieldOverrides, createDataFrame, createTheme, dateTime, FieldConfigOptionsRegistry, FieldType,
  getDisplayProcessor, standardTransformers, standardTransformersRegistry, transformDataFrame,
} = require('@grafana/data');
const { BigValue, GlobalStyles, PanelChrome, Table, ThemeContext, TimeSeries } = require('@grafana/ui');

type Answers = Record<string, Record<string, any[]>>;
declare global {
  interface Window { dashboard: any; answers: Answers; range: { from: number; to: number }; drawn: string[] }
}

const COLUMN = 80;
const ROW = 30;
const GAP = 8;
const theme = createTheme({ colors: { mode: 'light' } });

standardTransformersRegistry.setInit(() =>
  [
    standardTransformers.mergeTransformer, standardTransformers.filterFieldsByNameTransformer,
    standardTransformers.organizeFieldsTransformer, standardTransformers.filterFieldsTransformer,
    standardTransformers.orderFieldsTransformer, standardTransformers.renameFieldsTransformer,
  ].map((one: any) => ({
    id: one.id, name: one.name, transformation: () => Promise.resolve(one), editor: () => null,
    imageDark: '', imageLight: '',
  })) as any
);

const keep = (value: any) => value;
const option = (id: string, custom = false) => ({
  id, path: id, name: id, isCustom: custom, process: keep, shouldApply: () => true, override: () => null, editor: () => null,
});
const registry = new FieldConfigOptionsRegistry(() => [
  ...['unit', 'min', 'max', 'decimals', 'displayName', 'color', 'thresholds', 'mappings', 'links'].map((id) => option(id)),
  ...['drawStyle', 'lineInterpolation', 'lineWidth', 'fillOpacity', 'gradientMode', 'showPoints', 'spanNulls', 'stacking',
    'axisPlacement', 'axisLabel', 'axisSoftMin', 'scaleDistribution', 'thresholdsStyle', 'transform', 'lineStyle',
    'cellOptions', 'width', 'align'].map((id) => ({ ...option(id, true), id: `custom.${id}`, path: id })),
] as any);

const number = (text: string) => (text === 'NaN' ? NaN : Number(text));

/** The name of a series by its `legendFormat`. */
function named(target: any, labels: Record<string, string>): string {
  const text = target.legendFormat as string;
  return text === '__auto' ? '' : text.replace(/\{\{(\w+)\}\}/g, (_, label) => labels[label] ?? '');
}

/** Frames as Grafana's Prometheus data source makes them. */
function frames(panel: any, answers: Record<string, any[]>): DataFrame[] {
  return panel.targets.flatMap((target: any): DataFrame[] => {
    const series = answers[target.refId] ?? [];
    if (target.format === 'table') {
      if (series.length === 0) {
        return [];
      }
      const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric)))].sort();
      const value = panel.targets.length > 1 ? `Value #${target.refId}` : 'Value';
      return [createDataFrame({
        refId: target.refId,
        fields: [
          { name: 'Time', type: FieldType.time, values: series.map((one) => one.value[0] * 1000) },
          ...labels.map((label) => ({ name: label, type: FieldType.string, values: series.map((one) => one.metric[label] ?? '') })),
          { name: value, type: FieldType.number, values: series.map((one) => number(one.value[1])) },
        ],
      })];
    }
    return series.map((one) => {
      const points: [number, string][] = one.values ?? [one.value];
      const name = named(target, one.metric);
      return createDataFrame({
        refId: target.refId,
        fields: [
          { name: 'Time', type: FieldType.time, values: points.map(([time]) => time * 1000) },
          {
            name: 'Value', type: FieldType.number, labels: one.metric, values: points.map(([, text]) => number(text)),
            config: name ? { displayNameFromDS: name } : {},
          },
        ],
      });
    });
  });
}

async function prepared(panel: any, answers: Record<string, any[]>): Promise<DataFrame[]> {
  const transformed = panel.transformations
    ? await lastValueFrom<DataFrame[]>(transformDataFrame(panel.transformations, frames(panel, answers)))
    : frames(panel, answers);
  return applyFieldOverrides({
    data: transformed, fieldConfig: panel.fieldConfig, fieldConfigRegistry: registry, replaceVariables: (text: string) => text,
    theme, timeZone: 'utc',
  } as any);
}

function stat(data: DataFrame[], width: number, height: number, panel: any) {
  const field = data[0]?.fields.find((one: Field) => one.type === FieldType.number);
  const value = field?.values[field.values.length - 1];
  const shown = field ? (field.display ?? getDisplayProcessor({ field, theme }))(value) : { text: 'No data', numeric: NaN };
  return <BigValue value={{ ...shown }} width={width} height={height} theme={theme} colorMode={panel.options.colorMode}
    graphMode={'none' as any} textMode={'value' as any} justifyMode={'auto' as any} />;
}

function table(data: DataFrame[], width: number, height: number, panel: any) {
  return data[0] ? <Table data={data[0]} width={width} height={height} initialSortBy={panel.options.sortBy} columnMinWidth={50} /> : null;
}

function timeSeries(data: DataFrame[], width: number, height: number, panel: any) {
  const { from, to } = window.range;
  const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  return <TimeSeries frames={data} width={width} height={height} timeRange={timeRange} timeZone="utc" legend={panel.options.legend} />;
}

/** A bar for each series, a piece for each time in which its value stayed the same. */
function stateTimeline(data: DataFrame[], width: number, height: number) {
  const { from, to } = window.range;
  const longest = Math.max(...data.map((frame) => frame.fields[1].config.displayNameFromDS!.length));
  const side = Math.min(width * 0.45, 16 + longest * 6.5);
  const step = Math.max(10, Math.min(30, (height - 8) / Math.max(1, data.length)));
  const x = (time: number) => ((time - from) / (to - from)) * (width - side);
  const rows = data.slice(0, Math.floor(height / step)).map((frame, index) => {
    const [times, values] = frame.fields as [Field, Field];
    const pieces: { start: number; end: number; value: number }[] = [];
    times.values.forEach((time: number, at: number) => {
      const last = pieces[pieces.length - 1];
      const next = Math.min(to, time + 30_000);
      if (last && last.value === values.values[at] && time - last.end <= 1) {
        last.end = next;
      } else {
        pieces.push({ start: time, end: next, value: values.values[at] });
      }
    });
    return <div key={index} style={{ position: 'relative', height: step, fontSize: 11, lineHeight: `${step}px` }}>
      <span style={{ position: 'absolute', width: side - 8, overflow: 'hidden', whiteSpace: 'nowrap', textOverflow: 'ellipsis', textAlign: 'right' }}>
        {values.config.displayNameFromDS}
      </span>
      {pieces.map((piece) => {
        const shown = values.display!(piece.value);
        return <span key={piece.start} style={{
          position: 'absolute', left: side + x(piece.start), width: Math.max(1, x(piece.end) - x(piece.start)), top: 1, bottom: 1,
          background: shown.color, color: '#fff', overflow: 'hidden', paddingLeft: 4,
        }}>{shown.text}</span>;
      })}
    </div>;
  });
  return <div>{rows}</div>;
}

function Drawn({ panel, data, width, height }: any) {
  if (data.every((frame: DataFrame) => frame.length === 0)) {
    return <div style={{ textAlign: 'center', lineHeight: `${height}px`, opacity: 0.6 }}>No data</div>;
  }
  switch (panel.type) {
    case 'stat': return stat(data, width, height, panel);
    case 'table': return table(data, width, height, panel);
    case 'timeseries': return timeSeries(data, width, height, panel);
    default: return stateTimeline(data, width, height);
  }
}

async function main() {
  const { dashboard, answers } = window;
  const all = await Promise.all(dashboard.panels.map(async (panel: any) => ({
    panel, data: panel.type === 'row' ? [] : await prepared(panel, answers[panel.id] ?? {}),
  })));
  window.drawn = [];
  const place = ({ x, y, w, h }: any) => ({
    position: 'absolute' as const, left: x * COLUMN / 1.5 + GAP, top: y * ROW + 48, width: w * COLUMN / 1.5 - GAP, height: h * ROW - GAP,
  });
  const boxes = all.map(({ panel, data }) => {
    const box = place(panel.gridPos);
    if (panel.type === 'row') {
      return <div key={panel.id} style={{ ...box, fontWeight: 500, fontSize: 15, lineHeight: '24px' }}>{panel.title}</div>;
    }
    window.drawn.push(`${panel.title}: ${data.reduce((sum: number, frame: DataFrame) => sum + frame.length, 0)}`);
    return <div key={panel.id} style={box}>
      <PanelChrome title={panel.title} width={box.width} height={box.height}>
        {(width: number, height: number) => <Drawn panel={panel} data={data} width={width} height={height} />}
      </PanelChrome>
    </div>;
  });
  const title = <div style={{ position: 'absolute', left: GAP, top: 12, fontSize: 20, fontWeight: 500 }}>{dashboard.title}</div>;
  createRoot(document.getElementById('root')!).render(
    <ThemeContext.Provider value={theme}><GlobalStyles />{title}{boxes}</ThemeContext.Provider>
  );
}

main().catch((error) => { document.title = `failed: ${error}`; console.error(error); });
