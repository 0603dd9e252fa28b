// Package v2 stands in for the module of Grafana's dashboard schema v2, which module proxies do not all serve.
//
// The linter reads dashboards of schema v2 through these types, and ours have the classic schema. Reading one of
// schema v2 fails with an error instead of an empty dashboard, which every rule would accept.
package v2

import "errors"

var errStandIn = errors.New("this build of dashboard-linter reads the classic schema only")

// DashboardSpec is a dashboard; decoding one always fails.
type DashboardSpec struct {
	Title       string
	Editable    *bool
	Elements    map[string]DashboardElement
	Variables   []DashboardVariableKind
	Annotations []DashboardAnnotationQueryKind
}

// UnmarshalJSON refuses every dashboard.
func (*DashboardSpec) UnmarshalJSON([]byte) error { return errStandIn }

// The rest has the fields that the linter's source names, and no value ever.
type (
	DashboardElement             struct{ PanelKind *DashboardPanelKind }
	DashboardPanelKind           struct{ Spec DashboardPanelSpec }
	DashboardPanelQueryKind      struct{ Spec panelQuerySpec }
	DashboardAnnotationQueryKind struct{ Spec annotationSpec }
	DashboardVariableRefresh     string

	DashboardPanelSpec struct {
		Id                 float64
		Title, Description string
		Data               struct {
			Spec struct{ Queries []DashboardPanelQueryKind }
		}
		VizConfig struct {
			Group string
			Spec  struct{ FieldConfig, Options any }
		}
	}
	DashboardDataQueryKind struct {
		Group      string
		Spec       map[string]any
		Datasource *struct{ Name *string }
	}
	DashboardVariableKind struct {
		QueryVariableKind      *struct{ Spec queryVariableSpec }
		DatasourceVariableKind *struct{ Spec variableSpec }
		CustomVariableKind     *struct{ Spec variableSpec }
		IntervalVariableKind   *struct{ Spec variableSpec }
		ConstantVariableKind   *struct{ Spec variableSpec }
		TextVariableKind       *struct{ Spec variableSpec }
		AdhocVariableKind      *struct{ Spec variableSpec }
		GroupByVariableKind    *struct{ Spec variableSpec }
		SwitchVariableKind     *struct{ Spec variableSpec }
	}

	panelQuerySpec struct {
		RefId  string
		Hidden bool
		Query  DashboardDataQueryKind
	}
	annotationSpec struct {
		Name  string
		Query DashboardDataQueryKind
	}
	queryVariableSpec struct {
		Name            string
		Label, AllValue *string
		Multi           bool
		Refresh         DashboardVariableRefresh
		Query           DashboardDataQueryKind
	}
	variableSpec struct {
		Name, Query, PluginId string
		Label, AllValue       *string
		Multi                 bool
		Refresh               DashboardVariableRefresh
	}
)

const (
	DashboardVariableRefreshOnDashboardLoad    DashboardVariableRefresh = "onDashboardLoad"
	DashboardVariableRefreshOnTimeRangeChanged DashboardVariableRefresh = "onTimeRangeChanged"
)
