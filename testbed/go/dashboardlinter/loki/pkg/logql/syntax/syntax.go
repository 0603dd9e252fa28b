// Package syntax stands in for Loki's parser, which links Loki: caches, clients of every cloud, Envoy's protocols.
//
// The linter parses queries of dashboards whose data source is Loki with it, and ours have Prometheus. A query of Loki
// fails with an error instead of an empty expression, which the rule would accept.
package syntax

import (
	"errors"
	"time"
)

var errStandIn = errors.New("this build of dashboard-linter reads no queries of Loki")

// ParseExpr refuses every query.
func ParseExpr(string) (Expr, error) { return nil, errStandIn }

// The rest has the names that the linter's source uses, and no value ever.
type (
	Expr       any
	SampleExpr any

	BinOpExpr struct {
		SampleExpr
		RHS SampleExpr
	}
	RangeAggregationExpr  struct{ Left *LogRangeExpr }
	VectorAggregationExpr struct{ Left SampleExpr }
	LabelReplaceExpr      struct{ Left SampleExpr }
	LogRangeExpr          struct {
		Left     Expr
		Interval time.Duration
	}
	PipelineExpr struct {
		Left        Expr
		MultiStages []Expr
	}
)
