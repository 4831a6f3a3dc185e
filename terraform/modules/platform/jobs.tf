# What a job run is told. `tailrace.aws.emr.Application` takes each of `local.runner` as its arguments.
variable "release_label" {
  description = "EMR release of the applications."
  type        = string
  default     = "emr-spark-8.1.0"
}

variable "image_uri" {
  description = "Image in ECR for the workers; null: the release's own."
  type        = string
  default     = null
}

variable "architecture" {
  description = "X86_64 or ARM64."
  type        = string
  default     = "X86_64"
}

variable "stream_capacity" {
  description = "The most that all streams together take at once."
  type        = object({ cpu = number, memory = number, disk = optional(number, 200) })
  default     = { cpu = 16, memory = 64 }
}

variable "backfill_capacity" {
  description = "The most that backfills and maintenance together take at once."
  type        = object({ cpu = number, memory = number, disk = optional(number, 1000) })
  default     = { cpu = 64, memory = 256 }
}

variable "backfill_idle_minutes" {
  description = "Minutes without a run after which the application of backfills stops."
  type        = number
  default     = 15
}

variable "warm_backfill_workers" {
  description = "Executors that the application of backfills keeps ready while it is started."
  type        = number
  default     = 0
}

variable "artifacts_prefix" {
  description = "Prefix of the artifacts in their bucket. A prefix of its own for each release lets one go back to the one before."
  type        = string
  default     = "tailrace"
}

variable "packed_python" {
  description = "Whether jobs run with the Python of environment.tar.gz in the artifacts; false where the image has what they need."
  type        = bool
  default     = true

  validation {
    condition     = var.packed_python || var.image_uri != null
    error_message = "packed_python: set it to false together with image_uri, an image that has Python and tailrace."
  }
}

variable "jars" {
  description = "Files under jars/ in the artifacts that the jobs load; * is any, and empty is none: the image has them."
  type        = list(string)
  default     = ["*.jar"]

  validation {
    condition     = alltrue([for one in var.jars : can(regex("^[A-Za-z0-9._*+-]+\\.jar$", one))])
    error_message = "jars: set names of files such as *.jar or iceberg-spark-runtime-4.1_2.13-1.12.0.jar, without a folder."
  }
}

variable "packed_definitions" {
  description = "Whether jobs are given the definitions and contracts of definitions.tar.gz in the artifacts; false where the image has them."
  type        = bool
  default     = true

  validation {
    condition     = var.packed_definitions || var.image_uri != null
    error_message = "packed_definitions: set it to false together with image_uri, an image that has the definitions."
  }
}

variable "definitions_folder" {
  description = "Folder that drivers find definitions in; null: that of definitions.tar.gz, or pipelines of the working directory without it."
  type        = string
  default     = null

  validation {
    condition     = var.definitions_folder == null || can(regex("^[A-Za-z0-9_./-]+$", coalesce(var.definitions_folder, "-")))
    error_message = "definitions_folder: set a path of letters, digits, _ . - and /, such as /opt/shop/pipelines, or null."
  }
}

variable "stream_workers" {
  description = "Size of a stream's driver and executors, and the most executors of one stream."
  type        = object({ cores = number, memory = string, most = number })
  default     = { cores = 4, memory = "14g", most = 2 }

  validation {
    condition     = contains([1, 2, 4, 8, 16], var.stream_workers.cores) && can(regex("^[1-9][0-9]*g$", var.stream_workers.memory)) && var.stream_workers.most >= 1
    error_message = "stream_workers: cores is 1, 2, 4, 8 or 16, memory such as 14g, most 1 or more."
  }
}

variable "backfill_workers" {
  description = "Size of a backfill's driver and executors, and the most executors of one run."
  type        = object({ cores = number, memory = string, most = number })
  default     = { cores = 4, memory = "14g", most = 8 }

  validation {
    condition     = contains([1, 2, 4, 8, 16], var.backfill_workers.cores) && can(regex("^[1-9][0-9]*g$", var.backfill_workers.memory)) && var.backfill_workers.most >= 1
    error_message = "backfill_workers: cores is 1, 2, 4, 8 or 16, memory such as 14g, most 1 or more."
  }
}

variable "job_environment" {
  description = "More variables of drivers and executors, such as { TAILRACE_KEEP_SNAPSHOTS = \"7d\" }."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, value in var.job_environment : can(regex("^[A-Z][A-Z0-9_]*$", name)) && !can(regex("[\\s'\"\\\\]", value))])
    error_message = "job_environment: names are capitals, digits and _; a value has no space, quote or backslash, as EMR takes arguments apart there."
  }
}

variable "job_conf" {
  description = "More of Spark's settings for all jobs; they win over those made here."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, value in var.job_conf : startswith(name, "spark.") && !can(regex("[\\s'\"\\\\]", value))])
    error_message = "job_conf: names begin with spark.; a value has no space, quote or backslash, as EMR takes arguments apart there."
  }
}

variable "create_msk" {
  description = "Whether to make an MSK Serverless cluster."
  type        = bool
  default     = false
}

variable "kafka_bootstrap" {
  description = "Brokers of a Kafka that is there already, HOST:PORT,HOST:PORT; null: none, or the one that is made."
  type        = string
  default     = null

  validation {
    condition     = var.kafka_bootstrap == null || can(regex("^[^\\s,:]+:[0-9]+(,[^\\s,:]+:[0-9]+)*$", coalesce(var.kafka_bootstrap, "-")))
    error_message = "kafka_bootstrap: set HOST:PORT, or several with commas and no space between."
  }
  validation {
    condition     = var.kafka_bootstrap == null || !var.create_msk
    error_message = "kafka_bootstrap: name an existing Kafka or have one made (create_msk), not both."
  }
}

variable "kafka_security" {
  description = "How clients sign in to an existing Kafka: plaintext, tls, iam, plain, scram-sha-256, scram-sha-512 or oauthbearer. MSK that is made here is iam."
  type        = string
  default     = "tls"

  validation {
    condition     = contains(["plaintext", "tls", "iam", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer"], var.kafka_security)
    error_message = "kafka_security: set plaintext, tls, iam, plain, scram-sha-256, scram-sha-512 or oauthbearer."
  }
}

locals {
  place     = module.lake.place
  bootstrap = var.create_msk ? module.streaming.kafka_bootstrap : var.kafka_bootstrap

  job_environment = merge(
    {
      AWS_REGION           = var.region
      AWS_DEFAULT_REGION   = var.region
      TAILRACE_WAREHOUSE   = module.lake.warehouse
      TAILRACE_CATALOG     = var.catalog
      TAILRACE_CATALOG_URI = "glue://${var.account_id}"
      TAILRACE_NAMESPACE   = module.lake.namespace
      TAILRACE_LOG_FORMAT  = "json"
    },
    local.bootstrap == null ? {} : {
      TAILRACE_KAFKA_BOOTSTRAP = local.bootstrap
      TAILRACE_KAFKA_SECURITY  = var.create_msk ? "iam" : var.kafka_security
    },
    var.job_environment,
  )

  # What `tailrace.aws.bundle.conf` says; a test holds both together.
  archives = compact([
    var.packed_python ? "${local.place}/environment.tar.gz#environment" : "",
    var.packed_definitions ? "${local.place}/definitions.tar.gz#definitions" : "",
  ])
  python = "./environment/bin/python"
  shared_conf = merge(
    var.packed_python ? {
      "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON" = local.python
      "spark.emr-serverless.driverEnv.PYSPARK_PYTHON"        = local.python
      "spark.executorEnv.PYSPARK_PYTHON"                     = local.python
    } : {},
    length(var.jars) > 0 ? { "spark.jars" = join(",", [for one in var.jars : "${local.place}/jars/${one}"]) } : {},
    length(local.archives) > 0 ? { "spark.archives" = join(",", local.archives) } : {},
  )

  conf = {
    for name, size in { stream = var.stream_workers, backfill = var.backfill_workers } : name => merge(local.shared_conf, {
      "spark.driver.cores"                   = tostring(size.cores)
      "spark.driver.memory"                  = size.memory
      "spark.executor.cores"                 = tostring(size.cores)
      "spark.executor.memory"                = size.memory
      "spark.dynamicAllocation.maxExecutors" = tostring(size.most)
    }, var.job_conf)
  }

  runner = {
    for name in ["stream", "backfill"] : name => {
      id          = { stream = module.streaming.stream_application.id, backfill = module.streaming.backfill_application.id }[name]
      role        = { stream = module.security.stream_role_arn, backfill = module.security.backfill_role_arn }[name]
      place       = local.place
      definitions = coalesce(var.definitions_folder, var.packed_definitions ? "definitions/pipelines" : "pipelines")
      environment = merge(var.packed_definitions ? { TAILRACE_CONTRACTS = "definitions/iceberg_schemas" } : {}, local.job_environment)
      conf        = local.conf[name]
      log_group   = module.observability.log_groups[name]
    }
  }
}
