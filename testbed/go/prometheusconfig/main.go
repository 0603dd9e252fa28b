// Prometheus' configuration as the Prometheus operator writes it, from objects on standard input.
//
// Input: one List, as YAML or JSON: a Prometheus, and PodMonitors, ServiceMonitors, PrometheusRules and Namespaces.
// Output in the folder: prometheus.yaml and rules/*.yaml. Printed: what was selected and what was rejected, as JSON.
//
// Selection by labels and namespaces, validation and the configuration are the Prometheus operator's own code. Ours is
// what its controllers do with an API server: read the objects, and write the files.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus-operator/prometheus-operator/pkg/assets"
	"github.com/prometheus-operator/prometheus-operator/pkg/operator"
	prompkg "github.com/prometheus-operator/prometheus-operator/pkg/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

const version = "0.1.0 for prometheus-operator 0.93.0"

type report struct {
	PodMonitors     []string `json:"podMonitors"`
	ServiceMonitors []string `json:"serviceMonitors"`
	Rules           []string `json:"rules"`
	Rejected        []string `json:"rejected"`
}

type objects struct {
	prometheus      *monitoringv1.Prometheus
	namespaces      []*corev1.Namespace
	podMonitors     []*monitoringv1.PodMonitor
	serviceMonitors []*monitoringv1.ServiceMonitor
	rules           []*monitoringv1.PrometheusRule
}

func main() {
	asked := flag.Bool("version", false, "print the version")
	folder := flag.String("out", "", "folder of prometheus.yaml and rules/")
	managers := flag.String("alertmanager", "", "host:port of an Alertmanager outside the cluster")
	flag.Parse()
	if *asked {
		fmt.Println("prometheusconfig", version)
		return
	}
	if err := run(*folder, *managers); err != nil {
		fmt.Fprintln(os.Stderr, "prometheusconfig:", err)
		os.Exit(1)
	}
}

func run(folder, manager string) error {
	data, err := io.ReadAll(io.LimitReader(os.Stdin, 64<<20))
	if err != nil {
		return err
	}
	found, err := read(data)
	if err != nil {
		return err
	}
	done := report{[]string{}, []string{}, []string{}, []string{}}
	config, err := configuration(found, manager, &done)
	if err != nil {
		return err
	}
	// In the operator's pods the rules are at a fixed place, and its reloader fills in which pod reads the file.
	text := strings.NewReplacer(prompkg.RulesDir, folder, "$(SHARD)", "0", "$(POD_NAME)", "prometheus-0").Replace(string(config))
	if err := os.MkdirAll(filepath.Join(folder, "rules"), 0o755); err != nil {
		return err
	}
	if err := rules(found, filepath.Join(folder, "rules"), &done); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

func read(data []byte) (*objects, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := yaml.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("standard input is no List: %w", err)
	}
	found := &objects{}
	for number, item := range list.Items {
		var meta metav1.TypeMeta
		if err := json.Unmarshal(item, &meta); err != nil {
			return nil, fmt.Errorf("items[%d]: %w", number, err)
		}
		var err error
		switch meta.Kind {
		case "Prometheus":
			found.prometheus = &monitoringv1.Prometheus{}
			err = json.Unmarshal(item, found.prometheus)
		case "Namespace":
			found.namespaces, err = grow(found.namespaces, item)
		case "PodMonitor":
			found.podMonitors, err = grow(found.podMonitors, item)
		case "ServiceMonitor":
			found.serviceMonitors, err = grow(found.serviceMonitors, item)
		case "PrometheusRule":
			found.rules, err = grow(found.rules, item)
		default:
			err = fmt.Errorf("kind %q is not one that is read", meta.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", number, err)
		}
	}
	if found.prometheus == nil {
		return nil, fmt.Errorf("the List has no Prometheus")
	}
	return found, nil
}

func grow[T any](list []*T, item json.RawMessage) ([]*T, error) {
	one := new(T)
	err := json.Unmarshal(item, one)
	return append(list, one), err
}

func configuration(found *objects, manager string, done *report) ([]byte, error) {
	prom, ctx := found.prometheus, context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store := assets.NewTestStoreBuilder()
	// Namespaces are matched below, so the selector sees one in which everything is.
	spec := prom.Spec
	plain := prom.DeepCopy()
	plain.Spec.PodMonitorNamespaceSelector, plain.Spec.ServiceMonitorNamespaceSelector = nil, nil
	metrics := operator.NewMetrics(prometheus.NewRegistry())
	selector, err := prompkg.NewResourceSelector(logger, plain, store, nil, metrics, operator.NewFakeRecorder(1000, plain))
	if err != nil {
		return nil, err
	}
	pods, err := selector.SelectPodMonitors(ctx, lister(found, spec.PodMonitorNamespaceSelector, found.podMonitors))
	if err != nil {
		return nil, err
	}
	services, err := selector.SelectServiceMonitors(ctx, lister(found, spec.ServiceMonitorNamespaceSelector, found.serviceMonitors))
	if err != nil {
		return nil, err
	}
	done.PodMonitors, done.Rejected = sorted(pods.ValidResources()), append(done.Rejected, rejected("PodMonitor", pods)...)
	done.ServiceMonitors = sorted(services.ValidResources())
	done.Rejected = append(done.Rejected, rejected("ServiceMonitor", services)...)
	generator, err := prompkg.NewConfigGenerator(logger, prom, prompkg.WithEndpointSliceSupport())
	if err != nil {
		return nil, err
	}
	var managers []byte
	if manager != "" {
		managers = []byte(fmt.Sprintf("- static_configs:\n  - targets: [%q]\n", manager))
	}
	return generator.GenerateServerConfiguration(
		prom, services.ValidResources(), pods.ValidResources(), nil, nil, store, nil, nil, managers, []string{"rules"},
	)
}

// lister gives the objects of the namespaces that the selector matches: nil is the Prometheus' own, as in its CRD.
func lister[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](found *objects, selector *metav1.LabelSelector, list []P) prompkg.ListAllByNamespaceFn {
	return func(_ string, wanted labels.Selector, add cache.AppendFunc) error {
		for _, one := range list {
			within, err := matches(found, selector, one.GetNamespace())
			if err != nil {
				return err
			}
			if within && wanted.Matches(labels.Set(one.GetLabels())) {
				add(one)
			}
		}
		return nil
	}
}

func matches(found *objects, selector *metav1.LabelSelector, namespace string) (bool, error) {
	if selector == nil {
		return namespace == found.prometheus.Namespace, nil
	}
	wanted, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	for _, one := range found.namespaces {
		if one.Name == namespace {
			return wanted.Matches(labels.Set(one.Labels)), nil
		}
	}
	return false, fmt.Errorf("the List has no Namespace %s", namespace)
}

func rules(found *objects, folder string, done *report) error {
	spec := found.prometheus.Spec
	wanted, err := metav1.LabelSelectorAsSelector(spec.RuleSelector)
	if err != nil {
		return err
	}
	for _, one := range found.rules {
		within, err := matches(found, spec.RuleNamespaceSelector, one.Namespace)
		if err != nil {
			return err
		}
		if !within || !wanted.Matches(labels.Set(one.Labels)) {
			continue
		}
		name := one.Namespace + "/" + one.Name
		if wrong := operator.ValidateRule(one.Spec, model.UTF8Validation, parser.Options{}); len(wrong) > 0 {
			done.Rejected = append(done.Rejected, fmt.Sprintf("PrometheusRule %s: %v", name, wrong))
			continue
		}
		text, err := yaml.Marshal(one.Spec)
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%s-%s.yaml", one.Namespace, one.Name)
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o644); err != nil {
			return err
		}
		done.Rules = append(done.Rules, name)
	}
	return nil
}

func sorted[T any](selected map[string]T) []string {
	names := make([]string, 0, len(selected))
	for name := range selected {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func rejected[T operator.ConfigurationResource](kind string, all operator.TypedResourcesSelection[T]) []string {
	valid, names := all.ValidResources(), []string{}
	for name := range all {
		if _, fine := valid[name]; !fine {
			names = append(names, kind+" "+name)
		}
	}
	sort.Strings(names)
	return names
}
