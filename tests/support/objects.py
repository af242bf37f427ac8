"""Pods, nodes and quota objects as the API server writes them, with all the fields that we do not read."""

import copy
from typing import Any

Json = dict[str, Any]

_POD: Json = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "generateName": "train-resnet-",
        "creationTimestamp": "2026-03-01T08:30:15Z",
        "generation": 2,
        "labels": {
            "app": "train-resnet",
            "batch.kubernetes.io/controller-uid": "5b1f3a52-7f0e-4f0e-9d58-0b7f0a4d3a11",
            "batch.kubernetes.io/job-name": "train-resnet",
            "cohort-extender.io/managed": "true",
            "controller-uid": "5b1f3a52-7f0e-4f0e-9d58-0b7f0a4d3a11",
            "job-name": "train-resnet",
        },
        "annotations": {
            "kueue.x-k8s.io/queue-name": "training",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        },
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train-resnet",
                "uid": "5b1f3a52-7f0e-4f0e-9d58-0b7f0a4d3a11",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": [
            {
                "manager": "kube-controller-manager",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-03-01T08:30:15Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {
                        "f:annotations": {".": {}, "f:kueue.x-k8s.io/queue-name": {}},
                        "f:finalizers": {".": {}, 'v:"batch.kubernetes.io/job-tracking"': {}},
                        "f:generateName": {},
                        "f:labels": {".": {}, "f:app": {}, "f:batch.kubernetes.io/job-name": {}, "f:job-name": {}},
                        "f:ownerReferences": {".": {}, 'k:{"uid":"5b1f3a52-7f0e-4f0e-9d58-0b7f0a4d3a11"}': {}},
                    },
                    "f:spec": {
                        "f:containers": {
                            'k:{"name":"main"}': {
                                ".": {},
                                "f:command": {},
                                "f:image": {},
                                "f:imagePullPolicy": {},
                                "f:name": {},
                                "f:resources": {".": {}, "f:limits": {}, "f:requests": {}},
                                "f:terminationMessagePath": {},
                                "f:terminationMessagePolicy": {},
                            }
                        },
                        "f:dnsPolicy": {},
                        "f:enableServiceLinks": {},
                        "f:restartPolicy": {},
                        "f:schedulerName": {},
                        "f:securityContext": {},
                        "f:terminationGracePeriodSeconds": {},
                    },
                },
            }
        ],
    },
    "spec": {
        "volumes": [
            {
                "name": "kube-api-access-8x2vq",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {
                            "configMap": {
                                "name": "kube-root-ca.crt",
                                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                            }
                        },
                    ],
                    "defaultMode": 420,
                },
            }
        ],
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/vision/train:2026.03",
                "command": ["python", "-m", "train", "--epochs", "90"],
                "env": [{"name": "DATA", "value": "/data/imagenet"}, {"name": "WORLD_SIZE", "value": "8"}],
                "resources": {
                    "limits": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
                    "requests": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
                },
                "volumeMounts": [
                    {
                        "name": "kube-api-access-8x2vq",
                        "readOnly": True,
                        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                    }
                ],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "schedulingGates": [{"name": "cohort-extender.io/admission"}],
        "priority": 100,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    },
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ],
        "qosClass": "Guaranteed",
    },
}


def pod_json(
    name: str = "train-resnet-7xk2p", *, uid: str = "", version: str = "1001", namespace: str = "research"
) -> Json:
    """A gated pod of a Job, 4 KB of JSON."""
    pod = copy.deepcopy(_POD)
    pod["metadata"].update(name=name, namespace=namespace, uid=uid or f"uid-{name}", resourceVersion=version)
    return pod


def node_json(name: str = "a100-01", *, version: str = "501", gpus: int = 8) -> Json:
    """A GPU node."""
    amounts = {"cpu": "64", "memory": "527955616Ki", "nvidia.com/gpu": str(gpus), "pods": "110"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "creationTimestamp": "2026-02-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": name, "gpu": "a100"},
        },
        "spec": {"taints": [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-01T08:00:00Z"}],
            "images": [{"names": ["registry.example.com/vision/train:2026.03"], "sizeBytes": 8_000_000_000}],
        },
    }
