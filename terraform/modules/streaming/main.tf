# Two applications, so that no backfill takes what the stream needs: each has a capacity of its own.
resource "aws_emrserverless_application" "stream" {
  name          = "${var.context.name}-stream"
  type          = "SPARK"
  release_label = var.release_label
  architecture  = var.architecture

  maximum_capacity {
    cpu    = "${var.stream_capacity.cpu} vCPU"
    memory = "${var.stream_capacity.memory} GB"
    disk   = "${var.stream_capacity.disk} GB"
  }

  auto_start_configuration {
    enabled = true
  }

  # It keeps no workers ready, so that it costs nothing while no stream runs: there is nothing to stop it for.
  auto_stop_configuration {
    enabled = false
  }

  network_configuration {
    subnet_ids         = var.subnet_ids
    security_group_ids = var.security_group_ids
  }

  dynamic "image_configuration" {
    for_each = var.image_uri[*]
    content {
      image_uri = image_configuration.value
    }
  }
}

resource "aws_emrserverless_application" "backfill" {
  name          = "${var.context.name}-backfill"
  type          = "SPARK"
  release_label = var.release_label
  architecture  = var.architecture

  maximum_capacity {
    cpu    = "${var.backfill_capacity.cpu} vCPU"
    memory = "${var.backfill_capacity.memory} GB"
    disk   = "${var.backfill_capacity.disk} GB"
  }

  auto_start_configuration {
    enabled = true
  }

  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = var.backfill_idle_minutes
  }

  network_configuration {
    subnet_ids         = var.subnet_ids
    security_group_ids = var.security_group_ids
  }

  dynamic "image_configuration" {
    for_each = var.image_uri[*]
    content {
      image_uri = image_configuration.value
    }
  }

  dynamic "initial_capacity" {
    for_each = var.warm_backfill_workers > 0 ? { Driver = 1, Executor = var.warm_backfill_workers } : {}
    content {
      initial_capacity_type = initial_capacity.key
      initial_capacity_config {
        worker_count = initial_capacity.value
        worker_configuration {
          cpu    = "4 vCPU"
          memory = "16 GB"
        }
      }
    }
  }
}

resource "aws_msk_serverless_cluster" "this" {
  count = var.create_msk ? 1 : 0

  cluster_name = "${var.context.name}-kafka"

  vpc_config {
    subnet_ids         = var.subnet_ids
    security_group_ids = var.kafka_security_group_ids
  }

  client_authentication {
    sasl {
      iam {
        enabled = true
      }
    }
  }
}
