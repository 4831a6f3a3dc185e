variable "release_label" {
  description = "EMR release of both applications. tailrace needs Spark 4.1, which emr-spark-8.1.0 is the first to have."
  type        = string
  default     = "emr-spark-8.1.0"

  validation {
    condition     = can(regex("^(emr-[0-9]+\\.[0-9]+\\.[0-9]+|emr-spark-[0-9]+\\.[0-9]+(\\.[0-9]+|-preview))$", var.release_label))
    error_message = "release_label: set a release such as emr-spark-8.1.0."
  }
}

variable "image_uri" {
  description = "Image in ECR, of the release's base image, with what the jobs need; null: they take it out of the artifacts."
  type        = string
  default     = null

  validation {
    condition     = var.image_uri == null || can(regex("^[0-9]{12}\\.dkr\\.ecr\\.[a-z0-9-]+\\.amazonaws\\.com(\\.cn)?/[^:@]+(:|@sha256:)[^:@]+$", coalesce(var.image_uri, "-")))
    error_message = "image_uri: set ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME:TAG (or @sha256:DIGEST), or null."
  }
}

variable "architecture" {
  description = "X86_64 or ARM64. What was packed for the one does not run on the other."
  type        = string
  default     = "X86_64"

  validation {
    condition     = contains(["X86_64", "ARM64"], var.architecture)
    error_message = "architecture: set X86_64 or ARM64."
  }
}

variable "stream_capacity" {
  description = "The most that all streams together take at once: vCPUs, and GB of memory and disk."
  type = object({
    cpu    = number
    memory = number
    disk   = optional(number, 200)
  })
  default = { cpu = 16, memory = 64 }

  validation {
    condition     = var.stream_capacity.cpu >= 2 && var.stream_capacity.memory >= 4
    error_message = "stream_capacity: a driver and one executor need 2 vCPUs and 4 GB at least."
  }
}

variable "backfill_capacity" {
  description = "The most that backfills and maintenance together take at once: vCPUs, and GB of memory and disk."
  type = object({
    cpu    = number
    memory = number
    disk   = optional(number, 1000)
  })
  default = { cpu = 64, memory = 256 }

  validation {
    condition     = var.backfill_capacity.cpu >= 2 && var.backfill_capacity.memory >= 4
    error_message = "backfill_capacity: a driver and one executor need 2 vCPUs and 4 GB at least."
  }
}

variable "backfill_idle_minutes" {
  description = "Minutes without a run after which the application of backfills stops."
  type        = number
  default     = 15

  validation {
    condition     = var.backfill_idle_minutes >= 1 && var.backfill_idle_minutes <= 10080
    error_message = "backfill_idle_minutes: EMR takes 1 to 10080."
  }
}

variable "warm_backfill_workers" {
  description = "Executors that the application of backfills keeps ready, with a driver, while it is started. They cost while they wait; 0: none."
  type        = number
  default     = 0

  validation {
    condition     = var.warm_backfill_workers >= 0 && var.warm_backfill_workers <= 50
    error_message = "warm_backfill_workers: set 0 to 50."
  }
}

variable "subnet_ids" {
  description = "Private subnets that the workers are in."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "subnet_ids: set two or more, in different zones."
  }
}

variable "security_group_ids" {
  description = "Security groups of the workers."
  type        = list(string)
}

variable "create_msk" {
  description = "Whether to make an MSK Serverless cluster."
  type        = bool
  default     = false
}

variable "kafka_security_group_ids" {
  description = "Security groups of the MSK cluster."
  type        = list(string)
  default     = []
}
