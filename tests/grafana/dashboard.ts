// What a dashboard of ours may look like: Grafana's types, with JSON's plain words where these have enums, and for each
// kind of panel that we use the options of that panel. A field that is not there, or of another type, does not compile.
import type { DataQuery, Dashboard as GrafanaDashboard, Panel as GrafanaPanel, RowPanel } from '@grafana/schema';
import type { Options as BarGaugeOptions } from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type {
  FieldConfig as TimelineFields,
  Options as TimelineOptions,
} from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type {
  FieldConfig as TableFields,
  Options as TableOptions,
} from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type {
  FieldConfig as SeriesFields,
  Options as SeriesOptions,
} from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

/** The same as JSON: the value of an enum in place of the enum. */
type Json<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends (infer Item)[]
      ? Json<Item>[]
      : T extends object
        ? { [Field in keyof T]: Json<T[Field]> }
        : T;

/** A query, as the data source `prometheus` takes it. */
interface Target extends DataQuery {
  datasource: { type: 'prometheus'; uid: '${datasource}' };
  expr: string;
  editorMode: 'code';
  format: 'table' | 'time_series';
  instant: boolean;
  range: boolean;
  legendFormat: string;
}

type Base = Json<Omit<GrafanaPanel, 'options' | 'fieldConfig' | 'type' | 'targets' | 'transformations'>>;

interface Organize {
  id: 'organize';
  options: {
    excludeByName: Record<string, boolean>;
    includeByName: Record<string, boolean>;
    indexByName: Record<string, number>;
    renameByName: Record<string, string>;
  };
}

interface Convert {
  id: 'convertFieldType';
  options: { fields: object; conversions: { targetField: string; destinationType: 'number' }[] };
}

interface Merge {
  id: 'merge';
  options: Record<string, never>;
}

type PanelOf<Kind extends string, Options, Fields> = Base & {
  type: Kind;
  title: string;
  description: string;
  targets: Target[];
  transformations?: (Organize | Convert | Merge)[];
  options: Json<Options>;
  fieldConfig: {
    defaults: Omit<Json<NonNullable<GrafanaPanel['fieldConfig']>['defaults']>, 'custom'> & {
      custom: Partial<Json<Fields>>;
    };
    overrides: Json<NonNullable<GrafanaPanel['fieldConfig']>['overrides']>;
  };
};

type Row = Json<Omit<RowPanel, 'panels'>> & { panels: never[] };

type Panel =
  | Row
  | PanelOf<'bargauge', BarGaugeOptions, object>
  | PanelOf<'stat', StatOptions, object>
  | PanelOf<'state-timeline', TimelineOptions, TimelineFields>
  | PanelOf<'table', TableOptions, TableFields>
  | PanelOf<'timeseries', SeriesOptions, SeriesFields>;

export type Dashboard = Json<Omit<GrafanaDashboard, 'panels'>> & {
  uid: string;
  title: string;
  panels: Panel[];
};
